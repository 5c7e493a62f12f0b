/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How debug mode speaks: call sites, texts, the count, and the reports that wait for the caller's function. Those are a list
 * under `reports_lock`, a leaf; the function runs without it. A report for which the host has no memory is logged and counted,
 * and not given to the function. */
#include "base/cancel.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/process.h"
#include "base/text.h"
#include "memory/debug/block.h"
#include "record/stack.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Thread_local struct debug_site debug_here;

struct waiting_report {
    struct waiting_report *next;
    tarn_debug_report report;
    struct debug_text text;
};

static mutex reports_lock = MUTEX_INITIALIZER(LOCK_DEBUG_REPORTS);
static struct waiting_report *reports, **reports_end = &reports;   /* reports_lock */
static void (*report_function)(void *, const tarn_debug_report *); /* reports_lock */
static void *report_argument;                                      /* reports_lock */
static struct object_pool report_objects = OBJECT_POOL(struct waiting_report);
static atomic_uint_fast64_t count;

/* Call sites ------------------------------------------------------------------------------------------------------- */

#define STACK_MOST 48

/* The frames from the caller's on, where the stack can be walked. */
static unsigned walk(void *caller, void **frames)
{
    unsigned kept = 0;
    void *stack[STACK_MOST];
    int all = debug_has(DEBUG_SITES) ? stack_walk(stack, STACK_MOST) : 0, at = 0;
    while (at < all && stack[at] != caller)
        at++;
    for (; at < all && kept < DEBUG_FRAMES; at++)
        frames[kept++] = stack[at];
    if (!kept)
        frames[kept++] = caller;
    return kept;
}

void debug_site_take(void *caller)
{
    bool runs =
        atomic_load(&process_state) == PROCESS_RUNS; /* in a child a lock of the unwinder's may be another thread's */
    debug_here.count = runs ? walk(caller, debug_here.frames) : 0;
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

static void append_frame(struct debug_text *text, const void *frame)
{
    Dl_info info;
    const char *call = (const char *)frame - 1; /* a return address may be that of the next function */
    if (!dladdr(call, &info) || !info.dli_fname)
        debug_append(text, "%p", frame);
    else if (info.dli_sname)
        debug_append(text, "%s+0x%zx (%s+0x%zx)", info.dli_sname,
                     (size_t)((const char *)frame - (const char *)info.dli_saddr), file_name(info.dli_fname),
                     (size_t)((const char *)frame - (const char *)info.dli_fbase));
    else
        debug_append(text, "%s+0x%zx", file_name(info.dli_fname),
                     (size_t)((const char *)frame - (const char *)info.dli_fbase));
}

void debug_append_site(struct debug_text *text, const char *label, const struct debug_site *site)
{
    if (!site->count)
        return;
    debug_append(text, "\n  %s at ", label);
    for (unsigned i = 0; i < site->count; i++) {
        debug_append(text, "%s", i ? " < " : "");
        append_frame(text, site->frames[i]);
    }
}

void debug_append_sites(struct debug_text *text, const struct debug_block *block)
{
    debug_append_site(text, "allocated", &block->allocated);
    if (atomic_load(&block->state) != DEBUG_LIVE)
        debug_append_site(text, "freed", &block->freed);
}

void debug_describe(struct debug_text *text, const struct debug_block *block)
{
    debug_append(text, "the block at %#zx of %zu bytes", (size_t)debug_address(block), block->requested);
    if (block->tag)
        debug_append(text, ", tag \"%s\"", tarn_tag_text(block->tag));
    debug_append(text, " (device %d, stream %#llx, pool (%llu, %llu))", block->device,
                 (unsigned long long)block->stream, (unsigned long long)block->pool[0],
                 (unsigned long long)block->pool[1]);
}

/* Reports ---------------------------------------------------------------------------------------------------------- */

static void log_lines(const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        log_write(LOG_ERRORS, "debug: %.*s", (int)length, text);
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
    log_lines(text->text);
    if (debug_has(DEBUG_ABORT))
        stop(text);
    keep(report, text);
}

static struct waiting_report *take(void (**function)(void *, const tarn_debug_report *), void **argument)
{
    mutex_lock(&reports_lock);
    struct waiting_report *report = reports;
    if (report && !(reports = report->next))
        reports_end = &reports;
    *function = report_function;
    *argument = report_argument;
    mutex_unlock(&reports_lock);
    return report;
}

void debug_deliver(void)
{
    static _Thread_local bool delivers; /* the function may call tarn, which comes here */
    void (*function)(void *, const tarn_debug_report *) = NULL;
    void *argument = NULL;
    if (delivers)
        return;
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    delivers = true;
    for (struct waiting_report *report; (report = take(&function, &argument));) {
        if (function)
            function(argument, &report->report);
        object_free(&report_objects, report);
    }
    delivers = false;
}

uint64_t debug_count(void)
{
    return atomic_load(&count);
}

void tarn_debug_on_report(void (*function)(void *argument, const tarn_debug_report *report), void *argument)
{
    if (atomic_load(&process_state) == PROCESS_IS_FORKED)
        return;
    mutex_lock(&reports_lock);
    report_function = function;
    report_argument = argument;
    mutex_unlock(&reports_lock);
}

/* The checker ------------------------------------------------------------------------------------------------------ */

/* The two sides may be one block: memory that was used before its free and after it. */
void debug_conflict(const struct driver_conflict *conflict)
{
    struct debug_text text = {0};
    tarn_debug_report report = {.kind = TARN_DEBUG_CONFLICT, .device = conflict->device};
    struct debug_block *found[2] = {NULL, NULL};
    bool said = true;
    debug_append(&text, "use without an order between streams: %s", conflict->text);
    mutex_lock(&debug_lock);
    for (int i = 0; i < 2; i++) {
        const struct driver_side *side = &conflict->sides[i];
        struct debug_block *block = side->size ? debug_find_owner_locked(side->address, side->owner) : NULL;
        if (!block || block == found[0])
            continue;
        found[i] = block;
        said = said && block->conflicted;
        block->conflicted = true;
        if (!report.block) {
            report.block = (void *)debug_address(block);
            report.requested = block->requested;
            report.offset = (int64_t)(side->address - debug_address(block));
        }
        debug_append(&text, "\n  ");
        debug_describe(&text, block);
        debug_append_sites(&text, block);
    }
    mutex_unlock(&debug_lock);
    if (!report.block || !said)
        debug_report(&report, &text);
}

/* Leaks ------------------------------------------------------------------------------------------------------------ */

static bool is_leak(const struct debug_block *block, int device)
{
    return block->device == device && !block->counted && atomic_load(&block->state) == DEBUG_LIVE;
}

static bool same_site(const struct debug_site *a, const struct debug_site *b)
{
    return a->count == b->count && memcmp(a->frames, b->frames, a->count * sizeof *a->frames) == 0;
}

/* The sum of the blocks with the call site of the first one that is not counted yet. False when there is none. */
static bool next_leak(int device, tarn_debug_report *report, struct debug_text *text)
{
    const struct debug_block *first = NULL;
    size_t blocks = 0;
    mutex_lock(&debug_lock);
    for (struct debug_block *block = debug_next_locked(0); block; block = debug_next_locked(block->start + 1)) {
        if (!is_leak(block, device) || (first && !same_site(&first->allocated, &block->allocated)))
            continue;
        first = first ? first : block;
        block->counted = true;
        report->requested += block->requested;
        blocks++;
    }
    if (first) {
        report->block = (void *)debug_address(first);
        debug_append(text, "%zu live blocks of %zu bytes in all at tarn_shutdown(), the first: ", blocks,
                     report->requested);
        debug_describe(text, first);
        debug_append_site(text, "allocated", &first->allocated);
    }
    mutex_unlock(&debug_lock);
    return first != NULL;
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
