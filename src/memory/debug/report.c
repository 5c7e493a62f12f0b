/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How debug mode reports: call sites, texts, counts, and the reports that wait for the caller's
 * function. These are in a list under `reports_lock`, a leaf; the function runs without it. If the
 * host has no memory for a report, it is printed and counted, but not passed to the function. */
#include "base/log.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/text.h"
#include "base/thread/callback.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "memory/debug/debug_block.h"
#include "record/symbols.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct waiting_report {
    struct waiting_report *next;
    tarn_debug_report report;
    struct debug_text text;
};

static mutex reports_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct waiting_report *reports, **reports_end = &reports;   /* reports_lock */
static void (*report_function)(const tarn_debug_report *, void *); /* reports_lock */
static void *report_user;                                          /* reports_lock */
static struct object_pool report_objects = OBJECT_POOL(struct waiting_report);
static atomic_uint_fast64_t count;

/* Call sites ----------------------------------------------------------------------------------- */

void debug_site_take(void *caller)
{
    site_take(caller, debug_has(DEBUG_SITES));
}

void debug_append(struct debug_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof text->text - text->length;
    int length = vsnprintf(text->text + text->length, room, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < room)
        text->length += (size_t)length;
    else if (text_was_cut(text->text, sizeof text->text, (int)text->length + length))
        text->length = sizeof text->text - 1;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *last_part(const char *path, size_t most)
{
    size_t length = strlen(path);
    return length > most ? path + length - most : path;
}

/* Names that are cached: looking one up reads the program's files, which takes milliseconds. A
 * graph check of a training step tells of several hundred frames, thousands of times. A frame has a
 * few places, so that frames of one call stack do not take turns in one. */
#define NAMES 4096
#define PLACES 4

/* The name of a frame. After a dlclose(), the same address in another object is another frame. */
struct frame_name {
    const void *frame, *base;
    char text[200];
};

static mutex names_lock = MUTEX_INITIALIZER(LOCK_LEAF);
/* NAMES entries under names_lock, from the first report on; NULL before. */
static struct frame_name *names;

/* The first of a frame's places. Names lock. */
static struct frame_name *places_locked(const void *frame)
{
    uint64_t hash = (uintptr_t)frame * UINT64_C(0x9E3779B97F4A7C15) >> 40;
    return &names[hash % (NAMES / PLACES) * PLACES];
}

static bool find_name(const void *frame, const void *base, char *text, size_t size)
{
    bool found = false;
    mutex_lock(&names_lock);
    for (unsigned i = 0; names && !found && i < PLACES; i++) {
        const struct frame_name *name = &places_locked(frame)[i];
        found = name->frame == frame && name->base == base;
        if (found)
            snprintf(text, size, "%s", name->text);
    }
    mutex_unlock(&names_lock);
    return found;
}

/* In the first place; the name that was kept longest leaves the last one. */
static void keep_name(const void *frame, const void *base, const char *text)
{
    mutex_lock(&names_lock);
    if (!names)
        names = pages_alloc(NAMES * sizeof *names); /* zeroed */
    if (names) {
        struct frame_name *name = places_locked(frame);
        memmove(name + 1, name, (PLACES - 1) * sizeof *name);
        *name = (struct frame_name){.frame = frame, .base = base};
        snprintf(name->text, sizeof name->text, "%s", text);
    }
    mutex_unlock(&names_lock);
}

/* "attention (/srv/model.c:41)" if there is debug information; otherwise "attention
 * (model.so+0x1b2e1)", or without the name. Opens `symbols` for the first frame that needs them. */
static void name_frame(const void *frame, struct symbols **symbols, char *text, size_t size)
{
    struct symbol symbol;
    /* A return address may be the first of the next function. */
    const void *call = (const char *)frame - 1;
    const char *base = symbol_base(call);
    size_t offset = (size_t)((const char *)frame - base);
    if (find_name(frame, base, text, size))
        return;
    if (base && !*symbols)
        *symbols = symbols_open();
    if (!base || !*symbols) {
        snprintf(text, size, "+0x%zx", offset);
        return;
    }
    symbols_find(*symbols, (uint64_t)(uintptr_t)frame, &symbol);
    bool named = strncmp(symbol.name, "0x", 2) != 0;
    if (symbol.line)
        snprintf(text, size, "%.80s (%.100s:%d)", named ? symbol.name : "?",
                 last_part(symbol.file, 100), symbol.line);
    else if (named)
        snprintf(text, size, "%.80s (%.80s+0x%zx)", symbol.name,
                 last_part(file_name(symbol.file), 80), offset);
    else
        snprintf(text, size, "%.80s+0x%zx", file_name(symbol.file), offset);
    keep_name(frame, base, text);
}

void debug_site_text(const struct site *site, char *text, size_t size)
{
    struct symbols *symbols = NULL;
    size_t length = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < site->count && length + 1 < size; i++) {
        char name[sizeof((struct frame_name *)0)->text];
        name_frame(site->frames[i], &symbols, name, sizeof name);
        int more = snprintf(text + length, size - length, "%s%s", i ? " < " : "", name);
        length += more > 0 ? (size_t)more : 0;
    }
    if (symbols)
        symbols_close(symbols);
}

void debug_append_site(struct debug_text *text, const char *label, const struct site *site)
{
    char frames[SITE_TEXT];
    debug_site_text(site, frames, sizeof frames);
    if (site->count)
        debug_append(text, "\n  %s at %s", label, frames);
}

struct debug_facts debug_facts_locked(const struct debug_block *block)
{
    return (struct debug_facts){
        .address = debug_address(block),
        .requested = block->requested,
        .device = block->device,
        .pool = {block->pool[0], block->pool[1]},
        .stream = block->stream,
        .tag = block->tag,
        .was_freed = atomic_load(&block->state) != DEBUG_LIVE,
        .allocated = block->allocated,
        .freed = block->freed,
    };
}

struct debug_facts debug_facts_of(const struct debug_block *block)
{
    mutex_lock(&debug_lock);
    struct debug_facts facts = debug_facts_locked(block);
    mutex_unlock(&debug_lock);
    return facts;
}

void debug_append_sites(struct debug_text *text, const struct debug_facts *facts)
{
    debug_append_site(text, "allocated", &facts->allocated);
    if (facts->was_freed)
        debug_append_site(text, "freed", &facts->freed);
}

void debug_describe(struct debug_text *text, const struct debug_facts *facts)
{
    debug_append(text, "block of %zu bytes at %#zx", facts->requested, (size_t)facts->address);
    if (facts->tag)
        debug_append(text, ", tag \"%s\"", tarn_tag_text(facts->tag));
    debug_append(text, " (device %d, stream %#llx, pool (%llu, %llu))", facts->device,
                 (unsigned long long)facts->stream, (unsigned long long)facts->pool[0],
                 (unsigned long long)facts->pool[1]);
}

/* Reports -------------------------------------------------------------------------------------- */

/* Prints on standard error; in quiet mode only if the log is on. */
static void print_lines(const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        debug_say("debug: %.*s", (int)length, text);
        text += length + (text[length] != 0);
    }
}

static void keep(const tarn_debug_report *report, const struct debug_text *text)
{
    mutex_lock(&reports_lock);
    struct waiting_report *kept = report_function ? object_alloc(&report_objects) : NULL;
    if (kept) {
        kept->text = *text;
        kept->report = *report;
        kept->report.size = sizeof kept->report;
        kept->report.text = kept->text.text;
        kept->next = NULL;
        *reports_end = kept;
        reports_end = &kept->next;
    }
    mutex_unlock(&reports_lock);
}

static void stop(const struct debug_text *text)
{
    (void)dprintf(STDERR_FILENO, "tarn: TARN_DEBUG=abort: %s\n", text->text);
    abort();
}

void debug_report(const tarn_debug_report *report, const struct debug_text *text)
{
    atomic_fetch_add(&count, 1);
    if (debug_has(DEBUG_ABORT))
        stop(text);
    print_lines(text->text);
    keep(report, text);
}

static struct waiting_report *take(void (**function)(const tarn_debug_report *, void *),
                                   void **user)
{
    mutex_lock(&reports_lock);
    struct waiting_report *report = reports;
    if (report) {
        reports = report->next;
        if (!reports)
            reports_end = &reports;
    }
    *function = report_function;
    *user = report_user;
    mutex_unlock(&reports_lock);
    return report;
}

static _Thread_local bool delivers; /* this thread is in the caller's function */

CALLS_BACK static void deliver(const struct waiting_report *report,
                               void (*function)(const tarn_debug_report *report, void *user),
                               void *user)
{
    struct callback callback;
    callback_begin(&callback);
    function(&report->report, user);
    callback_end(&callback);
}

void debug_deliver(void)
{
    void (*function)(const tarn_debug_report *, void *) = NULL;
    void *user = NULL;
    if (delivers) /* that function may call tarn */
        return;
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    delivers = true;
    for (struct waiting_report *report; (report = take(&function, &user));) {
        if (function)
            deliver(report, function, user);
        object_free(&report_objects, report);
    }
    delivers = false;
}

uint64_t debug_count(void)
{
    return atomic_load(&count);
}

void tarn_debug_callback_set(void (*function)(const tarn_debug_report *report, void *user),
                             void *user)
{
    if (atomic_load(&process_state) == PROCESS_IS_FORKED)
        return;
    mutex_lock(&reports_lock);
    report_function = function;
    report_user = user;
    mutex_unlock(&reports_lock);
}

/* The checker ---------------------------------------------------------------------------------- */

/* The blocks of a conflict: of both sides. They may be the same, if memory was used before and
 * after its free. */
struct parties {
    struct debug_facts facts[2];
    int count;
    int64_t offset; /* bytes from the start of the first block to the conflict */
    bool said;      /* everything about it was reported before */
};

static void find_parties(const struct driver_conflict *conflict, struct parties *parties)
{
    struct debug_block *found[2] = {NULL, NULL};
    *parties = (struct parties){.said = true};
    mutex_lock(&debug_lock);
    for (int i = 0; i < 2; i++) {
        const struct driver_side *side = &conflict->sides[i];
        struct debug_block *block =
            side->size ? debug_find_owner_locked(side->address, side->owner) : NULL;
        if (!block || block == found[0])
            continue;
        found[i] = block;
        parties->said = parties->said && block->conflicted;
        block->conflicted = true;
        if (!parties->count)
            parties->offset = (int64_t)(side->address - debug_address(block));
        parties->facts[parties->count++] = debug_facts_locked(block);
    }
    mutex_unlock(&debug_lock);
}

void debug_conflict(const struct driver_conflict *conflict)
{
    struct debug_text text = {0};
    struct parties parties;
    tarn_debug_report report = {.kind = TARN_DEBUG_CONFLICT, .device = conflict->device};
    debug_append(&text, "use without an order between streams: %s", conflict->text);
    find_parties(conflict, &parties);
    if (parties.count && parties.said)
        return;
    for (int i = 0; i < parties.count; i++) {
        debug_append(&text, "\n  ");
        debug_describe(&text, &parties.facts[i]);
        debug_append_sites(&text, &parties.facts[i]);
    }
    if (parties.count) {
        report.block = (void *)parties.facts[0].address;
        report.requested = parties.facts[0].requested;
        report.offset = parties.offset;
    }
    debug_report(&report, &text);
}

/* Leaks ---------------------------------------------------------------------------------------- */

static bool is_leak(const struct debug_block *block, int device)
{
    return block->device == device && !block->counted && atomic_load(&block->state) == DEBUG_LIVE;
}

static bool same_site(const struct site *a, const struct site *b)
{
    return a->count == b->count && memcmp(a->frames, b->frames, a->count * sizeof *a->frames) == 0;
}

/* Sums up the blocks with the call site of the first one that is not counted yet. False: there is
 * none. */
static bool next_leak(int device, tarn_debug_report *report, struct debug_text *text)
{
    const struct debug_block *first = NULL;
    struct debug_facts facts;
    size_t blocks = 0;
    mutex_lock(&debug_lock);
    for (struct debug_block *block = debug_next_locked(0); block;
         block = debug_next_locked(block->start + 1)) {
        if (!is_leak(block, device) || (first && !same_site(&first->allocated, &block->allocated)))
            continue;
        if (!first)
            facts = debug_facts_locked(first = block);
        block->counted = true;
        report->requested += block->requested;
        blocks++;
    }
    mutex_unlock(&debug_lock);
    if (!blocks)
        return false;
    report->block = (void *)facts.address;
    debug_append(
        text, "never freed: %zu blocks of %zu bytes in all at tarn_shutdown(), the first: ", blocks,
        report->requested);
    debug_describe(text, &facts);
    debug_append_site(text, "allocated", &facts.allocated);
    return true;
}

void debug_report_leaks(int device)
{
    for (;;) {
        struct debug_text text = {0};
        tarn_debug_report report = {.kind = TARN_DEBUG_LEAK, .device = device};
        if (!next_leak(device, &report, &text))
            return;
        debug_report(&report, &text);
    }
}
