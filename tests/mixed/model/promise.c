/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Reads which statuses the headers promise. A function's statuses are those that the comment above
 * it names, those of functions that the comment refers to ("as tarn_alloc_on()"), and those that
 * every function of its header may return. Read once, before anything else. */
#include "mixed/model/promise.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/tarn.h>

enum { FUNCTIONS = 400, COMMENT = 8192 };

static struct promise {
    char name[64];
    uint64_t statuses;
    char comment[COMMENT];
} * promises;
static int promise_count;

static const struct {
    const char *name;
    tarn_status value;
} statuses[] = {
#define X(name, value, text) {#name, name},
    TARN_STATUS_LIST(X)
#undef X
};

static uint64_t statuses_in(const char *text)
{
    uint64_t found = 0;
    for (const char *at = text; (at = strstr(at, "TARN_")); at++)
        for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
            size_t length = strlen(statuses[i].name);
            if (strncmp(at, statuses[i].name, length) == 0 && !isupper((unsigned char)at[length]) &&
                at[length] != '_')
                found |= BIT(statuses[i].value);
        }
    return found;
}

static struct promise *promise_of(const char *name)
{
    for (int i = 0; i < promise_count; i++)
        if (strcmp(promises[i].name, name) == 0)
            return &promises[i];
    return NULL;
}

static void promise_add(const char *line, const char *comment, uint64_t all)
{
    static const char start[] = "TARN_API tarn_status ";
    if (strncmp(line, start, sizeof start - 1) != 0 || promise_count == FUNCTIONS)
        return;
    struct promise *promise = &promises[promise_count++];
    size_t length = strcspn(line + sizeof start - 1, "(");
    snprintf(promise->name, sizeof promise->name, "%.*s", (int)length, line + sizeof start - 1);
    snprintf(promise->comment, sizeof promise->comment, "%s", comment);
    promise->statuses = statuses_in(comment) | all | BIT(TARN_OK);
}

/* Joins a comment into one line, since a reference may continue on the next line. */
static void flatten(char *comment)
{
    char *to = comment;
    for (const char *from = comment; *from; from++)
        if (*from != '\n' || strncmp(from, "\n *", 3) != 0 || from[3] == '/')
            *to++ = *from;
        else if (from += 2, from[1] == ' ')
            *to++ = ' ', from++;
    *to = 0;
}

static void header_read(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[1024], first[COMMENT] = "", comment[COMMENT] = "";
    bool in_comment = false, seen = false;
    uint64_t all = 0;
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        bool begins =
            strncmp(line, "/*", 2) == 0 && !strstr(line, "SPDX") && !strstr(line, "Copyright");
        if (begins) {
            in_comment = true;
            comment[0] = 0;
        }
        if (in_comment)
            strncat(comment, line, sizeof comment - strlen(comment) - 1);
        if (in_comment && strstr(line, "*/")) {
            in_comment = false;
            flatten(comment);
            /* Statuses of the whole header: from that sentence on; in a short comment, all of it */
            if (!seen) {
                const char *every = strstr(comment, "may also return");
                snprintf(first, sizeof first, "%s",
                         strlen(comment) < 700 ? comment
                         : every               ? every
                                               : "");
                all = statuses_in(first);
            }
            seen = true;
            continue;
        }
        if (!in_comment && line[0] == '\n')
            comment[0] = 0;
        if (!in_comment)
            promise_add(line, comment, all);
    }
    fclose(file);
}

/* The statuses of functions that a comment refers to, as in "as tarn_alloc_on()" or "Fails as
 * tarn_handle_get() does". */
static uint64_t referred(const struct promise *promise)
{
    static const struct {
        const char *words, *name;
    } phrases[] = {{"rules of tarn_device_guard_set()", "tarn_device_guard_set"}};
    uint64_t found = 0;
    for (const char *at = promise->comment; (at = strstr(at, "as tarn_")); at++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 3, "( \n"), at + 3);
        const struct promise *other = promise_of(name);
        found |= other ? other->statuses : 0;
    }
    if (strstr(promise->comment, "as a get does") && promise_of("tarn_handle_get"))
        found |= promise_of("tarn_handle_get")->statuses;
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
        if (strstr(promise->comment, phrases[i].words) && promise_of(phrases[i].name))
            found |= promise_of(phrases[i].name)->statuses;
    return found;
}

void promises_read(void)
{
    const char *source = getenv("TARN_SOURCE");
    char path[4096];
    promises = calloc(FUNCTIONS, sizeof *promises);
    snprintf(path, sizeof path, "%s/include/tarn", source ? source : ".");
    DIR *folder = opendir(path);
    if (!folder) {
        fprintf(stderr, "%s is not there: TARN_SOURCE names the source\n", path);
        exit(2);
    }
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        char name[4500];
        size_t length = strlen(entry->d_name);
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (length > 2 && strcmp(entry->d_name + length - 2, ".h") == 0)
            header_read(name);
    }
    if (folder)
        closedir(folder);
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < promise_count; i++)
            promises[i].statuses |= referred(&promises[i]);
    for (int i = 0; getenv("TARN_MIXED_PROMISES") && i < promise_count; i++) {
        printf("%s:", promises[i].name);
        for (size_t k = 0; k < sizeof statuses / sizeof *statuses; k++)
            if (promises[i].statuses & BIT(statuses[k].value))
                printf(" %s", statuses[k].name + (k ? sizeof "TARN_ERROR" : sizeof "TARN"));
        printf("\n");
    }
}

bool promised_statuses(const char *name, uint64_t *promised)
{
    const struct promise *promise = promise_of(name);
    *promised = promise ? promise->statuses : 0;
    return promise != NULL;
}
