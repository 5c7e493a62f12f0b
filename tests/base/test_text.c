/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Texts that go to a terminal: what it would act upon is replaced, and what people write stays. */
#include "base/text.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void becomes(const char *text, const char *wanted)
{
    size_t size = strlen(text) + 1;
    char *copy = malloc(size); /* exact, so that a sanitizer sees the byte after the end */
    CHECK(copy != NULL);
    memcpy(copy, text, size);
    text_make_plain(copy);
    CHECK(strcmp(copy, wanted) == 0);
    free(copy);
}

static void what_a_terminal_acts_upon_is_replaced(void **state)
{
    (void)state;
    becomes("", "");
    becomes("libcuda.so.1 ~", "libcuda.so.1 ~");
    becomes("\033]0;title\007\033[2J", "?]0;title??[2J");
    becomes("a\nb\tc\rd\b\177", "a?b?c?d??");
    becomes("\302\205\302\233m\302\237 \302\240", "????m?? \302\240"); /* C1, and what follows it */
    becomes("\342\200\256evil\342\200\254 \342\201\246x\342\201\251", "?\?\?evil??? ???x???");
    becomes("mod\303\250le \343\203\242\343\203\207\343\203\253 \360\237\230\200",
            "mod\303\250le \343\203\242\343\203\207\343\203\253 \360\237\230\200");
    becomes("\377\300\200\303", "????");
    char lines[] = "one\n\033two\n";
    text_make_plain_lines(lines);
    CHECK(strcmp(lines, "one\n?two\n") == 0);
    char full[] = {'a', '\033', 'b', 'c'};
    text_end_plain(full, sizeof full);
    CHECK(strcmp(full, "a?b") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_terminal_acts_upon_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
