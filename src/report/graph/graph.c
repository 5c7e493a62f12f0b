/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The calls that check and remember graphs (tarn/graph.h), and the reports of debug mode. Owns
 * nothing. */
#include "report/graph/graph.h"
#include "base/log.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/callback.h"
#include "base/thread/cancel.h"
#include "device/capture.h"
#include "device/device.h"
#include "device/stream.h"
#include "memory/debug/debug_block.h"
#include "memory/settings/hooks.h"
#include "record/symbols.h"
#include "report/snapshot/notes.h"
#include "report/start.h"

#include <string.h>

static const char *const state_texts[] = {[TARN_GRAPH_LIVE] = "live",
                                          [TARN_GRAPH_HELD] = "held by the graph",
                                          [TARN_GRAPH_FREE] = "free",
                                          [TARN_GRAPH_OTHERS] =
                                              "free memory of a pool that is held",
                                          [TARN_GRAPH_CHANGED] = "another block's",
                                          [TARN_GRAPH_UNMAPPED] = "without memory"};

static const char *const node_texts[] = {[TARN_GRAPH_KERNEL] = "kernel",
                                         [TARN_GRAPH_COPY] = "a copy",
                                         [TARN_GRAPH_FILL] = "a fill",
                                         [TARN_GRAPH_RELEASE] = "a free",
                                         [TARN_GRAPH_BATCH] = "a batch"};

/* The call stack of the allocation, as far as the trace has it, without tarn's own frames. */
static struct site allocated(const struct known *known)
{
    struct site site = {.count = 0};
    const struct trace_stack *stack = intern_value(&trace_stacks, known->stack);
    for (int i = 0; stack && i < TRACE_FRAMES && stack->frames[i] && site.count < SITE_FRAMES; i++)
        if (site.count || !symbol_is_own(stack->frames[i]))
            site.frames[site.count++] = (void *)(uintptr_t)stack->frames[i];
    return site;
}

/* Reports what is certain, each block of a remembered graph once. */
static void report(const struct check *check, const tarn_graph_reference *reference,
                   const struct known *known)
{
    struct debug_text text = {0};
    const struct referred *referred = known->referred;
    const struct site origin = allocated(known);
    const tarn_block_info *block = &referred->block;
    const tarn_debug_report found = {
        .kind = TARN_DEBUG_GRAPH,
        .device = block->device,
        .block = block->base,
        .requested = reference->requested,
        .offset = (char *)reference->address - (char *)block->base,
    };
    const struct debug_facts facts = {.address = (uintptr_t)block->base,
                                      .requested = reference->requested,
                                      .device = block->device,
                                      .pool = {block->pool.first, block->pool.second},
                                      .stream = block->stream,
                                      .tag = block->tag};
    debug_append(&text, "graph %llu uses memory that is %s: node %zu, %s%s%s, parameter %u: ",
                 (unsigned long long)check->before->number, state_texts[reference->state],
                 reference->node, node_texts[reference->kind], reference->kernel[0] ? " " : "",
                 reference->kernel, reference->parameter);
    debug_describe(&text, &facts);
    debug_append_site(&text, "allocated", &origin);
    debug_append_site(&text, "captured", &check->before->captured);
    if (referred_has_ended(referred))
        debug_append_site(&text, "freed", &referred->freed);
    debug_report(&found, &text);
}

static void report_once(const struct check *check, const tarn_graph_reference *reference)
{
    struct known *known = remembered_at(check->before, (uintptr_t)reference->address);
    if (debug_has(DEBUG_GRAPHS) && reference->certainty == TARN_GRAPH_CERTAIN && known &&
        known->referred && !atomic_exchange(&known->told, true))
        report(check, reference, known);
}

CALLS_BACK static void call(const tarn_graph_reference *reference,
                            void (*found)(const tarn_graph_reference *reference, void *user),
                            void *user)
{
    struct callback callback;
    callback_begin(&callback);
    found(reference, user);
    callback_end(&callback);
}

/* The text of a call stack. Many findings have the same, and the names of functions are dear. */
struct site_words {
    struct site site;
    char text[SITE_TEXT];
};

static const char *words_of(struct site_words *words, const struct site *site)
{
    if (words->site.count != site->count ||
        memcmp(words->site.frames, site->frames, site->count * sizeof *site->frames) != 0) {
        words->site = *site;
        debug_site_text(site, words->text, sizeof words->text);
    }
    return words->text;
}

/* The last call stacks of each kind that were told. */
struct told {
    struct site_words remembered, freed, allocated;
};

static void tell(const struct check *check, tarn_graph_reference *reference, struct told *told,
                 void (*found)(const tarn_graph_reference *reference, void *user), void *user)
{
    char region[NOTE_BYTES] = "";
    const struct known *known = remembered_at(check->before, (uintptr_t)reference->address);
    if (check->before && reference->certainty)
        reference->remembered_at = words_of(&told->remembered, &check->before->captured);
    if (known && known->referred && referred_has_ended(known->referred))
        reference->freed_at = words_of(&told->freed, &known->referred->freed);
    if (known && known->referred) {
        const struct site site = allocated(known);
        reference->allocated_at = words_of(&told->allocated, &site);
        note_text(known->region, 0, region);
    }
    reference->region = region;
    call(reference, found, user);
}

/* Whom a check tells. */
struct listener {
    bool all;
    void (*found)(const tarn_graph_reference *reference, void *user);
    void *user;
    struct told told;
};

static tarn_graph_reference judge_and_tell(struct check *check, size_t index,
                                           struct listener *listener)
{
    tarn_graph_reference reference = judge(check, index);
    if (check->status)
        return reference;
    report_once(check, &reference);
    if (listener->found && (listener->all || reference.certainty))
        tell(check, &reference, &listener->told, listener->found, listener->user);
    return reference;
}

/* Judges each word. With `lists`, those that stay open are listed. */
static tarn_status judge_all(struct check *check, struct listener *listener, bool lists)
{
    struct verdicts *kept = lists ? check->kept : NULL;
    if (kept)
        *kept = (struct verdicts){.open = kept->open,
                                  .open_room = kept->open_room,
                                  .runs = kept->runs,
                                  .grounds = kept->grounds};
    uint64_t changes = atomic_load(&referred_changes);
    for (size_t i = 0; i < check->judged->count; i++) {
        check->open = (struct open){.index = i};
        const tarn_graph_reference reference = judge_and_tell(check, i, listener);
        if (check->status)
            return check->status;
        if (kept && !judged_is_closed(check, &reference) && !verdicts_add(kept, &check->open))
            kept = NULL;
    }
    if (kept)
        kept->changes = changes;
    judge_sum_up(check);
    return TARN_OK;
}

/* Judges the words that are open, while the others cannot have changed. */
static tarn_status judge_open(struct check *check, struct listener *listener)
{
    struct verdicts *kept = check->kept;
    check->summary.references = check->judged->count - kept->open_count;
    for (size_t i = 0; i < kept->open_count; i++) {
        check->open = kept->open[i];
        (void)judge_and_tell(check, check->open.index, listener);
        if (check->status)
            return check->status;
        kept->open[i] = check->open;
    }
    judge_sum_up(check);
    return TARN_OK;
}

/* ---- The calls ---- */

static tarn_status check_graph(const void *graph)
{
    tarn_status status = memory_ready();
    if (!status && !graph)
        status = failed(TARN_ERROR_INVALID_ARGUMENT, "graph is NULL");
    return status;
}

/* Finds what is remembered, and the words to judge: those of the graph, or the remembered ones. */
static tarn_status look(struct check *check, uint64_t number, struct remembered **used)
{
    *used = remembered_use(check->graph, number);
    if (number && !*used)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "no graph is remembered by the number %llu: it is gone, with all executables "
                      "made of it, or never was",
                      (unsigned long long)number);
    check->before = *used;
    if (number) {
        check->graph = (*used)->graph;
        check->judged = &(*used)->words;
        return TARN_OK;
    }
    check->judged = &check->words;
    tarn_status status = words_collect(check->graph, *used, &check->words);
    if (*used && (*used)->words.hash != check->words.hash)
        check->before = NULL; /* of a graph that was destroyed, or is changed since */
    return status;
}

static tarn_status check(struct check *check, const tarn_graph_options *options,
                         struct listener *listener)
{
    struct remembered *used = NULL;
    listener->all = options->all;
    tarn_status status = look(check, options->remembered, &used);
    check->kept = status || !check->before ? NULL : verdicts_take(used);
    bool by_memory = options->remembered;
    if (!status && by_memory && !options->all && check->kept &&
        check->kept->changes == atomic_load(&referred_changes))
        status = judge_open(check, listener);
    else if (!status)
        status = judge_all(check, listener, by_memory);
    check_finish(check);
    if (check->kept)
        verdicts_give(used);
    remembered_leave(used);
    if (debug_has(DEBUG_GRAPHS))
        debug_deliver();
    return status;
}

tarn_status tarn_graph_check(void *graph, const tarn_graph_options *given,
                             void (*found)(const tarn_graph_reference *reference, void *user),
                             void *user, tarn_graph_summary *summary)
{
    static const tarn_graph_options nothing_special = {.size = sizeof nothing_special};
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    tarn_graph_options options = nothing_special;
    struct check state = {.graph = graph};
    struct listener listener = {.found = found, .user = user};
    tarn_status status = memory_ready();
    if (!status)
        status = sized_read("tarn_graph_options", given ? given : &nothing_special, &options,
                            sizeof options);
    if (!status && summary)
        status = sized_check("tarn_graph_summary", summary, sizeof *summary);
    if (!status && !graph == !options.remembered)
        status =
            failed(TARN_ERROR_INVALID_ARGUMENT,
                   graph ? "graph is not NULL, and `remembered` names one too" : "graph is NULL");
    if (!status)
        status = check(&state, &options, &listener);
    if (!status && summary)
        sized_write(summary, &state.summary, sizeof state.summary);
    return status;
}

tarn_status tarn_graph_launch(void *executable, uint64_t number, tarn_stream given,
                              void (*found)(const tarn_graph_reference *reference, void *user),
                              void *user)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    const tarn_graph_options options = {.size = sizeof options, .remembered = number};
    struct check state = {.graph = NULL};
    struct listener listener = {.found = found, .user = user};
    struct stream *stream = NULL;
    tarn_status status = memory_ready();
    if (!status && (!executable || !number))
        status = failed(TARN_ERROR_INVALID_ARGUMENT,
                        executable ? "0 is no number of a graph" : "executable is NULL");
    if (!status)
        status = stream_of_call(given, &stream);
    if (!status)
        status = stream_refuse_foreign(stream, "a launch");
    if (!status)
        status = stream_refuse_capture(stream, "a launch");
    if (!status)
        status = check(&state, &options, &listener);
    if (status)
        return status;
    return device_note(device_at(stream->device),
                       driver->exec_launch(stream->device, executable, stream->native));
}

static tarn_status remember_graph(driver_graph graph, const struct site *site, uint64_t *number)
{
    struct graph_words words = {0};
    tarn_status status = words_collect(graph, NULL, &words);
    if (!status)
        status = remember(graph, &words, site, number);
    words_finish(&words);
    return status;
}

tarn_status tarn_graph_remember(void *graph, uint64_t *number)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    uint64_t made = 0;
    tarn_status status = check_graph(graph);
    if (status)
        return status;
    site_take(__builtin_return_address(0), true);
    struct site site = site_here;
    status = remember_graph(graph, &site, &made);
    if (!status && number)
        *number = made;
    return status;
}

void graph_captured(void *graph)
{
    struct error_before before;
    struct site site = site_here;
    uint64_t number = 0;
    error_attempt_begin(&before);
    tarn_status status = remember_graph(graph, &site, &number);
    if (status)
        log_write(LOG_ERRORS, "TARN_DEBUG=graphs: a captured graph is not watched: %s",
                  tarn_last_error());
    error_attempt_end(&before, TARN_OK);
}
