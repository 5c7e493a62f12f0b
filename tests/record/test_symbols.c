/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What is known of return addresses: the object around one, and its name, looked up once. */
#include "memory/debug/debug_block.h"
#include "record/symbols.h"
#include "support/host.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static unsigned looked_up;

/* In the place of the C library's, which is behind it. */
int dladdr(const void *address, Dl_info *info)
{
    static int (*real)(const void *, Dl_info *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "dladdr");
    looked_up++;
    return real(address, info);
}

static void an_object_begins_where_the_linker_says(void **state)
{
    (void)state;
    static char data;
    int local = 0;
    void *block = malloc(1);
    const void *addresses[] = {(void *)(uintptr_t)an_object_begins_where_the_linker_says, &data,
                               dlsym(RTLD_NEXT, "getenv"), dlsym(RTLD_NEXT, "dlsym"), &stdout};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        Dl_info info;
        CHECK(dladdr(addresses[i], &info) && symbol_base(addresses[i]) == info.dli_fbase);
    }
    CHECK(block && !symbol_base(block) && !symbol_base(&local) && !symbol_base(NULL));
    free(block);
}

/* dladdr() reads all symbols of an object, and a graph check tells of the same frames thousands of
 * times. */
static void a_name_that_is_known_is_not_looked_up(void **state)
{
    (void)state;
    char first[SITE_TEXT], second[SITE_TEXT];
    struct site site = {.count = 2};
    site.frames[0] = (char *)(uintptr_t)a_name_that_is_known_is_not_looked_up + 4;
    site.frames[1] = (char *)dlsym(RTLD_NEXT, "getenv") + 4;
    debug_site_text(&site, first, sizeof first);
    CHECK(looked_up && strstr(first, "getenv"));
    looked_up = 0;
    debug_site_text(&site, second, sizeof second);
    CHECK(strcmp(first, second) == 0 && !looked_up);
    CHECK(!symbol_is_own((uintptr_t)site.frames[1]) && !looked_up);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_begins_where_the_linker_says),
        cmocka_unit_test(a_name_that_is_known_is_not_looked_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
