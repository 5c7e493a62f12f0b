/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Limits: "20G,1=10G,GPU-8a2b=5G". A size alone is for every device. A size behind a number is for
 * the device to which the program gives that number. A size behind a UUID, or the beginning of one,
 * is for that device. `tarn run` has checked the text, so a rule that makes no sense is ignored
 * here. */
#include "base/bytes_text.h"
#include "base/text.h"
#include "shim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    NAMED_MOST = 4,
    /* NAMED_MOST: libraries that a refusal names; LOOKS_MOST: milliseconds to wait for the first
     * look */
    LOOKS_MOST = 300
};

/* The UUID as the driver's tools print it, without the prefix before the first "-". */
static void uuid_text(const struct book_device *device, char text[static 40])
{
    char *at = text;
    for (int i = 0; i < 16; i++)
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                      (unsigned char)device->uuid[i]);
}

static bool is_meant(const char *name, size_t length, unsigned index)
{
    char text[40], number[12];
    if (length > 4 && (strncmp(name, "GPU-", 4) == 0 || strncmp(name, "MIG-", 4) == 0)) {
        uuid_text(&book->device[index], text);
        return strncmp(text, name + 4, length - 4) == 0;
    }
    snprintf(number, sizeof number, "%u", index);
    return strlen(number) == length && memcmp(number, name, length) == 0;
}

static void apply(uint64_t limits[static BOOK_DEVICES], const char *rule, size_t length)
{
    const char *equals = memchr(rule, '=', length);
    uint64_t bytes = strtoull(equals ? equals + 1 : rule, NULL, 10);
    bool is_met = !equals || !bytes;
    for (unsigned i = 0; i < book->devices && bytes; i++)
        if (!equals || is_meant(rule, (size_t)(equals - rule), i)) {
            limits[i] = bytes;
            is_met = true;
        }
    /* written only before the book is complete, while no other thread reads it */
    if (!is_met && !book->magic && !book->limit_unmet[0])
        snprintf(book->limit_unmet, sizeof book->limit_unmet, "%.*s", (int)(equals - rule), rule);
}

void limits_read(const char *text)
{
    uint64_t limits[BOOK_DEVICES];
    memset(limits, 0xff, sizeof limits);
    if (!book->magic)
        book->limit_unmet[0] = '\0';
    while (text && *text) {
        size_t length = strcspn(text, ",");
        apply(limits, text, length);
        text += length;
        text += *text == ',';
    }
    for (unsigned i = 0; i < book->devices; i++) {
        atomic_store(&book->device[i].limit, limits[i]);
        if (limits[i] != UINT64_MAX)
            atomic_store(&book->limited, 1);
    }
}

uint64_t limits_unseen(struct book_device *device)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    if (!atomic_load_explicit(&device->looked, memory_order_relaxed) && book->watched) {
        atomic_store(&device->asks, 1);
        for (int i = 0; i < LOOKS_MOST && !atomic_load(&device->looked); i++)
            (void)nanosleep(&pause, NULL);
        atomic_store(&device->looked, 1); /* nobody looks; do not wait again */
    }
    uint64_t residue = atomic_load(&device->residue);
    return residue == UINT64_MAX ? 0 : residue;
}

struct holder {
    uint32_t library;
    uint64_t bytes;
};

static const char *library_name(uint32_t library)
{
    const char *path = book->library[library].path, *slash = strrchr(path, '/');
    return !path[0] ? "code of no file" : slash ? slash + 1 : path;
}

static size_t add_holders(unsigned device, char *text, size_t size, size_t used)
{
    struct holder holders[BOOK_LIBRARIES];
    uint32_t count = atomic_load(&book->libraries);
    for (uint32_t i = 0; i < count; i++)
        holders[i] = (struct holder){i, book_held(book, device, i)};
    for (int named = 0; named < NAMED_MOST && used < size; named++) {
        struct holder *most = &holders[0];
        for (uint32_t i = 1; i < count; i++)
            if (holders[i].bytes > most->bytes)
                most = &holders[i];
        if (!most->bytes)
            break;
        used += (size_t)snprintf(text + used, size - used, "%s%s %s", named ? ", " : ": ",
                                 library_name(most->library), bytes_text(most->bytes).text);
        most->bytes = 0;
    }
    return used;
}

/* Writes one line into the book, and to standard error in one write(). */
static void describe(struct book_device *device, unsigned index, uint64_t size, uint32_t site)
{
    char text[BOOK_TEXT];
    uint64_t residue = atomic_load(&device->residue);
    int length = snprintf(text, sizeof text, "GPU %u: %s refused to %s: limit %s, in use %s", index,
                          bytes_text(size).text, library_name(book->site[site].library),
                          bytes_text(atomic_load(&device->limit)).text,
                          bytes_text(atomic_load(&device->used)).text);
    size_t used = (size_t)length;
    if (group_has(index) && used < sizeof text)
        used += (size_t)snprintf(
            text + used, sizeof text - used, " of %s of group %s",
            bytes_text(group_used(index, residue == UINT64_MAX ? 0 : residue)).text, book->group);
    if (used < sizeof text)
        used = add_holders(index, text, sizeof text, used);
    if (residue != UINT64_MAX && used < sizeof text)
        snprintf(text + used, sizeof text - used, "; contexts and modules %s",
                 bytes_text(residue).text);
    text_make_plain(text); /* a library's name may have any characters */
    memcpy(device->refusal, text, sizeof device->refusal);
    char line[BOOK_TEXT + 16];
    length = snprintf(line, sizeof line, "tarn run: %s\n", text);
    (void)!write(STDERR_FILENO, line, (size_t)length);
}

uint64_t limits_left(unsigned index)
{
    const struct book_device *device = &book->device[index];
    uint64_t residue = atomic_load(&device->residue), limit = atomic_load(&device->limit);
    residue = residue == UINT64_MAX ? 0 : residue;
    uint64_t used =
        group_has(index) ? group_used(index, residue) : atomic_load(&device->used) + residue;
    return limit > used ? limit - used : 0;
}

void limits_refuse(unsigned index, uint64_t size, uint32_t site)
{
    static atomic_flag said[BOOK_DEVICES];
    struct book_device *device = &book->device[index];
    if (!atomic_flag_test_and_set(&said[index]))
        describe(device, index, size, site);
    atomic_fetch_add(&device->refused, 1);
    atomic_fetch_add(&device->refused_bytes, size);
}
