/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the advice: when something is worth a sentence, and the sentence. There is one function per
 * kind of advice, with its thresholds. Each reads only the analysis and adds at most one piece of
 * advice. docs/report.md says the kinds. */
#include "analysis/advice.h"

#include "analysis/category.h"
#include "analysis/leak.h"
#include "units.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
/* the least free memory that is worth advice, if it is also a tenth of what is reserved */
#define LEAST_FREE (64 * MIB)

const char *advice_name(enum advice_kind kind)
{
    static const char *const names[] = {"out_of_memory", "leak",      "fragmentation",
                                        "waiting",       "optimizer", "returns"};
    return names[kind];
}

static struct advice *add(struct advice_list *list, enum advice_kind kind, uint64_t bytes,
                          uint32_t moment)
{
    static struct advice beyond; /* takes what does not fit into the list */
    struct advice *advice = list->count < ADVICE_MOST ? &list->items[list->count++] : &beyond;
    *advice = (struct advice){.kind = kind, .bytes = bytes, .moment = moment};
    return advice;
}

static void say(struct advice *advice, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void say(struct advice *advice, const char *format, ...)
{
    size_t length = strlen(advice->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(advice->text + length, sizeof advice->text - length, format, arguments);
    va_end(arguments);
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100 * (double)part / (double)whole : 0;
}

/* Every version of PyTorch reads a variable of this name. */
#define SEGMENTS "expandable segments (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)"
#define LIMITS "torch.cuda.set_per_process_memory_fraction() or tarn_device_limit_set()"

/* How to switch tarn on, for the program that was recorded. */
static const char *tarn_named(const struct analysis *analysis)
{
    if (analysis->snapshot->rmm)
        return "tarn (tarn.use(rmm=True))";
    if (analysis->snapshot->of_driver)
        return "tarn (tarn run --pool)";
    return analysis->snapshot->before_expandable
               ? "tarn (python -m tarn.torch SCRIPT, with PyTorch 2.6 or later)"
               : "tarn (python -m tarn.torch SCRIPT)";
}

/* is_expandable(): PyTorch's expandable segments are in use. may_expand(): they can be advised,
 * since the recording is PyTorch's, from 2.1 on. */
static bool is_expandable(const struct analysis *analysis)
{
    bool expandable = analysis->snapshot->settings.expandable;
    for (size_t i = 0; i < analysis->range_count; i++)
        expandable = expandable || analysis->ranges[i].joins;
    return expandable;
}

static bool may_expand(const struct analysis *analysis)
{
    const struct snapshot *snapshot = analysis->snapshot;
    return !snapshot->rmm && !snapshot->of_driver && !snapshot->tarn.there &&
           !analysis_is_of_host(analysis) && !snapshot->before_expandable &&
           !is_expandable(analysis);
}

/* Names what could use memory that is free in holes, for a recording that was not replayed. */
static void say_what_may_join(struct advice *advice, const struct analysis *analysis)
{
    if (analysis->snapshot->tarn.there)
        say(advice, " A plan of the run (tarn plan) may leave fewer");
    else if (may_expand(analysis))
        say(advice, " What may join such holes: " SEGMENTS ", or %s", tarn_named(analysis));
    else
        say(advice, " %sWhat may join such holes: %s, which moves smaller pieces",
            is_expandable(analysis) ? "Expandable segments are on already. " : "",
            tarn_named(analysis));
}

/* Appends "a, b and c". */
static void say_list(struct advice *advice, const char *const *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        say(advice, "%s%s", i == 0 ? "" : i + 1 == count ? " and " : ", ", items[i]);
}

/* Says which allocators served the failed requests in a replay on a device of that size. An
 * allocator whose result is not known is left out. */
static void say_who_serves(struct advice *advice, const struct analysis *analysis,
                           const struct advice_replay *replay)
{
    const struct {
        const struct advice_run *run;
        const char *advised, *name;
    } runs[] = {
        {&replay->native, "PyTorch's default settings", "PyTorch's default settings"},
        {&replay->expandable, may_expand(analysis) ? SEGMENTS : "expandable segments",
         "expandable segments"},
        {&replay->tarn, tarn_named(analysis), "tarn"},
    };
    enum { RUNS = sizeof runs / sizeof *runs };
    const char *serve[RUNS], *fail[RUNS];
    size_t serving = 0, failing = 0;
    for (size_t i = 0; i < RUNS; i++)
        if (runs[i].run->ran && runs[i].run->reserved)
            serve[serving++] = runs[i].advised;
        else if (runs[i].run->ran)
            fail[failing++] = runs[i].name;
    const char *what = replay->tried > 1 ? "all that failed" : "it";
    say(advice, " In a replay on a device of that size, ");
    if (serving) {
        say_list(advice, serve, serving);
        say(advice, " serve%s %s", serving > 1 ? "" : "s", what);
    }
    say(advice, "%s", serving && failing ? "; " : "");
    if (failing) {
        say_list(advice, fail, failing);
        say(advice, " do%s not%s%s",
            failing > 1 || fail[0] == runs[0].name || fail[0] == runs[1].name ? "" : "es",
            serving ? "" : " serve ", serving ? "" : what);
    }
    say(advice, ".");
    if ((is_expandable(analysis) ? &replay->expandable : &replay->native)->reserved)
        say(advice,
            " The recorded settings serve %s there too, so the replay does not show what helps.",
            what);
}

static bool is_tried(const struct analysis *analysis, const struct advice_replay *replay)
{
    return replay && replay->tried && !analysis->snapshot->tarn.there;
}

/* Appends the name of a group, such as "step model.py:5", cut to a length that fits a sentence:
 * names of C++ templates may be longer. */
static void say_label(struct advice *advice, const struct analysis *analysis, enum analysis_by by,
                      uint32_t key)
{
    char label[100];
    const char *text = analysis_label(analysis, by, key, label, sizeof label);
    for (int length; *text; text += length + (int)strspn(text + length, " ")) {
        length = (int)strcspn(text, " ");
        bool last = !text[length + (int)strspn(text + length, " ")];
        say(advice, "%.*s%s", length, text, last ? "" : " ");
    }
}

/* Says whose memory it was, or would have been: the tag and its call site. */
static void say_whose(struct advice *advice, const struct analysis *analysis, uint32_t tag,
                      uint32_t stack)
{
    if (tag)
        say_label(advice, analysis, ANALYSIS_BY_TAG, tag);
    if (stack) {
        say(advice, "%s", tag ? " (" : "");
        say_label(advice, analysis, ANALYSIS_BY_SITE, analysis->sites[stack]);
        say(advice, "%s", tag ? ")" : "");
    }
}

/* Says what most of the memory of a moment is for, if that is known, and what reduces it. */
static bool say_category(struct advice *advice, const struct analysis *analysis, uint32_t moment,
                         uint64_t all)
{
    static const char *const what[CATEGORY_COUNT] = {
        [CATEGORY_WEIGHTS] =
            "weights. To reduce them, use a lower precision, shard them, or keep them on the host",
        [CATEGORY_GRADIENTS] = "gradients. To reduce them, shard them or use a lower precision",
        /* advise_optimizer() has its own advice for this */
        [CATEGORY_OPTIMIZER] = "the optimizer's state",
        [CATEGORY_ACTIVATIONS] = ("activations. To reduce them, use a smaller batch, shorter "
                                  "sequences or torch.utils.checkpoint"),
        [CATEGORY_CACHES] =
            "caches. To reduce them, keep fewer or shorter sequences at once, or set a bound",
    };
    size_t count;
    struct analysis_group *groups = analysis_groups(analysis, ANALYSIS_BY_CATEGORY, moment, &count);
    if (!groups)
        return false;
    if (count && what[groups[0].key] && groups[0].bytes >= all / 3)
        say(advice, " Judging by stacks and lifetimes, %s of that (%.0f %%) are %s.",
            units_bytes(groups[0].bytes).text, percent(groups[0].bytes, all), what[groups[0].key]);
    free(groups);
    return true;
}

/* Says which group has most memory at a moment. */
static bool say_largest(struct advice *advice, const struct analysis *analysis, uint32_t moment,
                        uint64_t all)
{
    size_t count;
    bool tagged = false;
    for (size_t i = 0; i < analysis->block_count && !tagged; i++)
        tagged = analysis->blocks[i].tag && analysis_lives(&analysis->blocks[i], moment);
    enum analysis_by by = tagged ? ANALYSIS_BY_TAG : ANALYSIS_BY_SITE;
    struct analysis_group *groups = analysis_groups(analysis, by, moment, &count);
    if (!groups)
        return false;
    if (count && groups[0].key) {
        say(advice, ", of which ");
        say_label(advice, analysis, by, groups[0].key);
        say(advice, " has %s (%.0f %%)", units_bytes(groups[0].bytes).text,
            percent(groups[0].bytes, all));
    }
    free(groups);
    return true;
}

/* If the size of the recorded device is not known: says how large a device must be for the whole
 * trace with the failed requests, and the least that the recorded one had. */
static void say_least(struct advice *advice, const struct analysis *analysis,
                      const struct advice_replay *replay)
{
    const struct {
        uint64_t least;
        const char *name;
    } runs[] = {
        {analysis->snapshot->rmm ? 0 : replay->native.least, "PyTorch's default settings"},
        {analysis->snapshot->rmm ? 0 : replay->expandable.least,
         may_expand(analysis) ? SEGMENTS : "expandable segments"},
        {replay->tarn.least, tarn_named(analysis)},
    };
    uint64_t had = analysis->at_peak.allocated;
    for (size_t i = 0; i < analysis->oom_count; i++)
        if (analysis->ooms[i].there > had)
            had = analysis->ooms[i].there;
    say(advice, " In a replay, all of it with what failed fits on a device of ");
    for (size_t i = 0, said = 0; i < sizeof runs / sizeof *runs; i++)
        if (runs[i].least)
            say(advice, "%s%s with %s", said++ ? ", of " : "", units_bytes_up(runs[i].least).text,
                runs[i].name);
    say(advice, ". The device had %s at least%s", units_bytes(had).text,
        replay->tarn.least <= had ? ", so tarn serves it there."
                                  : "; whether it had that much is not known.");
}

/* Advice on an error in a recording without segments, which shows what was allocated but not what
 * was reserved. */
static bool advise_unsized(const struct analysis *analysis, const struct analysis_oom *oom,
                           uint32_t moment, uint64_t allocated, const struct advice_replay *replay,
                           struct advice *advice)
{
    bool limited = oom->device_free >= oom->asked + WORKLOAD_ROUNDED;
    if (limited)
        say(advice, ", and the device had %s free: a limit refused it, such as " LIMITS " sets",
            units_bytes(oom->device_free).text);
    else if (oom->device_free)
        say(advice, ". The device had %s free", units_bytes(oom->device_free).text);
    say(advice, ". %s were allocated", units_bytes(allocated).text);
    bool said = say_largest(advice, analysis, moment, allocated);
    say(advice,
        ". The recording does not show how much was reserved%s, so it does not show whether %s.",
        limited || oom->device_free ? "" : " or how large the device is",
        limited ? "the request would have fit into what was free of it"
                : "holes or too little memory were the cause");
    if (replay && replay->tarn.least)
        say_least(advice, analysis, replay);
    else if (replay && replay->least_left_out && advice_wants_replay(analysis))
        say(advice, " `tarn report --least` computes how large a device must be.");
    return said && say_category(advice, analysis, moment, allocated);
}

/* Advice on the last error: a limit, holes, memory that waits for streams, or too little memory. */
static bool advise_out_of_memory(const struct analysis *analysis,
                                 const struct advice_replay *replay, struct advice_list *list)
{
    if (!analysis->oom_count)
        return true;
    const struct analysis_oom *oom = &analysis->ooms[analysis->oom_count - 1];
    uint32_t moment = oom->event < analysis->event_count ? oom->event : analysis->event_count;
    struct analysis_state state;
    if (!analysis_states(analysis, &moment, 1, &state))
        return false;
    struct advice *advice = add(list, ADVICE_OUT_OF_MEMORY, oom->asked, moment);
    if (analysis->oom_count > 1)
        say(advice, "Memory ran out %s times. The last request that failed was for %s",
            units_count(analysis->oom_count).text, units_bytes(oom->asked).text);
    else
        say(advice, "Memory ran out. The request that failed was for %s",
            units_bytes(oom->asked).text);
    if (oom->tag || oom->stack) {
        say(advice, ", by ");
        say_whose(advice, analysis, oom->tag, oom->stack);
    }
    if (!state.reserved)
        return advise_unsized(analysis, oom, moment, state.allocated, replay, advice);
    uint64_t there = state.unused + oom->device_free;
    if (oom->device_free >= oom->asked + WORKLOAD_ROUNDED) {
        say(advice,
            ", and the device had %s free: a limit refused it, such as " LIMITS
            " sets. %s of the %s reserved were "
            "free; %s were in use",
            units_bytes(oom->device_free).text, units_bytes(state.unused).text,
            units_bytes(state.reserved).text, units_bytes(state.allocated).text);
        bool said = say_largest(advice, analysis, moment, state.allocated);
        say(advice, ".");
        if (state.unused >= oom->asked && is_tried(analysis, replay))
            say_who_serves(advice, analysis, replay);
        return said && say_category(advice, analysis, moment, state.allocated);
    }
    say(advice, ". %s %s%s, and %s of the %s reserved were free",
        analysis->snapshot->of_driver ? "The limit left" : "The device had",
        units_bytes(oom->device_free).text, analysis->snapshot->of_driver ? "" : " free",
        units_bytes(state.unused).text, units_bytes(state.reserved).text);
    if (there >= oom->asked) {
        say(advice, ": enough together, but the largest hole was %s. This is fragmentation.",
            units_bytes(state.largest_free).text);
        if (is_tried(analysis, replay)) {
            say_who_serves(advice, analysis, replay);
        } else {
            say_what_may_join(advice, analysis);
            say(advice, ".");
        }
    } else if (there + state.waiting >= oom->asked) {
        say(advice,
            ". %s more were freed but waited for another stream: synchronize or free earlier.",
            units_bytes(state.waiting).text);
    } else {
        say(advice, ". Even in one piece that was %s too little: %s were in use",
            units_bytes(oom->asked - there).text, units_bytes(state.allocated).text);
        bool said = say_largest(advice, analysis, moment, state.allocated);
        say(advice, ".");
        return said && say_category(advice, analysis, moment, state.allocated);
    }
    return true;
}

/* Describes the largest leak, and how much all leaks have together. */
static bool advise_leak(const struct analysis *analysis, struct advice_list *list)
{
    size_t count;
    struct leak *leaks = leaks_find(analysis, &count);
    if (!leaks)
        return false;
    if (count) {
        const struct leak *most = &leaks[0];
        struct advice *advice = add(list, ADVICE_LEAK, most->bytes, most->last);
        say_whose(advice, analysis, most->tag, most->stack);
        if (most->size)
            say(advice, "A caller of unknown name that requests %s", units_bytes(most->size).text);
        uint64_t allocated = analysis->at_peak.allocated;
        say(advice,
            " keeps about %s more in each round and frees none of it: %s in %zu rounds, %.0f %% of "
            "the peak",
            units_bytes(most->bytes / most->rounds).text, units_bytes(most->bytes).text,
            most->rounds, percent(most->bytes, allocated));
        if (count > 1) {
            uint64_t others = 0;
            for (size_t i = 1; i < count; i++)
                others += leaks[i].bytes;
            say(advice, " (%zu other%s grow%s in the same way, by %s)", count - 1,
                count > 2 ? "s" : "", count > 2 ? "" : "s", units_bytes(others).text);
        }
        say(advice, ". Look for what still refers to the memory, such as a list or a cache without "
                    "a bound.");
    }
    free(leaks);
    return true;
}

/* The bytes by which reserved memory exceeds the program's peak, as far as they are free in holes;
 * 0 if that is too little for advice. */
static uint64_t spare_of(const struct analysis *analysis)
{
    const struct analysis_state *state = &analysis->at_peak_reserved;
    uint64_t needed = analysis->at_peak.allocated;
    uint64_t excess = state->reserved > needed ? state->reserved - needed : 0;
    uint64_t spare = excess < state->unused ? excess : state->unused;
    return spare < LEAST_FREE || spare < state->reserved / 10 ? 0 : spare;
}

bool advice_wants_replay(const struct analysis *analysis)
{
    bool failed =
        analysis->oom_count && (analysis->workload.device_memory || advice_wants_least(analysis));
    return analysis->has_trace && !analysis_begins_late(analysis) && (failed || spare_of(analysis));
}

bool advice_wants_least(const struct analysis *analysis)
{
    const struct snapshot *snapshot = analysis->snapshot;
    return analysis->has_trace && analysis->oom_count && !analysis->workload.device_memory &&
           !analysis->range_count && !snapshot->tarn.there;
}

/* Says what a replay found: which allocators need less, by a quarter of the excess or more, and
 * which do not. False if it found nothing of those that can be advised. */
static bool say_what_replays(struct advice *advice, const struct analysis *analysis,
                             const struct advice_replay *replay)
{
    uint64_t now = analysis->at_peak_reserved.reserved, worth = now - spare_of(analysis) / 4;
    uint64_t with_segments = replay->expandable.reserved, with_tarn = replay->tarn.reserved,
             with_default = analysis->snapshot->rmm || analysis->snapshot->of_driver
                                ? 0
                                : replay->native.reserved;
    bool expandable = with_segments && with_segments <= worth && may_expand(analysis);
    bool tarn = with_tarn && with_tarn <= worth;
    const char *const named = tarn_named(analysis);
    if (expandable && tarn)
        say(advice, " A replay of the trace reserves %s with " SEGMENTS ", and %s with %s.",
            units_bytes(with_segments).text, units_bytes(with_tarn).text, named);
    else if (expandable)
        say(advice, " A replay of the trace reserves %s with " SEGMENTS ".",
            units_bytes(with_segments).text);
    else if (tarn && with_segments > worth)
        say(advice,
            " A replay of the trace reserves %s with %s; expandable segments do not help (%s).",
            units_bytes(with_tarn).text, named, units_bytes(with_segments).text);
    else if (tarn)
        say(advice, " A replay of the trace reserves %s with %s.", units_bytes(with_tarn).text,
            named);
    else if (with_segments > worth && with_tarn > worth)
        say(advice, " Neither expandable segments nor tarn would reserve much less; requests of "
                    "fewer different sizes would help.");
    else if (with_segments > worth || with_tarn > worth)
        say(advice,
            " In a replay, %s would not reserve much less; requests of fewer different sizes "
            "would help.",
            with_tarn > worth ? "tarn" : "expandable segments");
    else
        return false;
    if ((expandable || tarn) && with_default && with_default <= worth)
        say(advice,
            " It reserves %s with PyTorch's default settings, too, so it does not show why more "
            "was reserved.",
            units_bytes(with_default).text);
    return true;
}

/* Advice on a state without a trace. A segment without blocks is not a hole: it can be given
 * back. */
static bool advise_state(const struct analysis *analysis, struct advice_list *list)
{
    const struct analysis_state *state = &analysis->at_peak_reserved;
    uint64_t holes = state->unused - state->idle;
    bool torn = holes >= LEAST_FREE && holes >= state->reserved / 10;
    if (!spare_of(analysis))
        return true;
    struct advice *advice = add(list, ADVICE_FRAGMENTATION, state->unused, analysis->peak_reserved);
    say(advice, "Of the %s reserved, ", units_bytes(state->reserved).text);
    if (state->idle)
        say(advice, "%s (%.1f %%) are in %s segment%s without a block%s",
            units_bytes(state->idle).text, percent(state->idle, state->reserved),
            units_count(state->idle_ranges).text, state->idle_ranges == 1 ? "" : "s",
            holes ? ", and " : "");
    if (holes)
        say(advice, "%s (%.1f %%) are free in %s hole%s beside blocks, of at most %s",
            units_bytes(holes).text, percent(holes, state->reserved),
            units_count(state->holes - state->idle_holes).text,
            state->holes - state->idle_holes == 1 ? "" : "s",
            units_bytes(state->largest_hole).text);
    say(advice, ".");
    if (state->idle >= LEAST_FREE)
        say(advice,
            " Segments without a block return to the device with %s, or when memory runs short.",
            analysis->snapshot->tarn.there ? "tarn_device_trim()" : "empty_cache()");
    if (torn) {
        say_what_may_join(advice, analysis);
        say(advice, ".");
    }
    return true;
}

/* Advice if clearly more is reserved than the program ever had, and the excess lies in holes. */
static bool advise_fragmentation(const struct analysis *analysis,
                                 const struct advice_replay *replay, struct advice_list *list)
{
    const struct analysis_state *state = &analysis->at_peak_reserved;
    bool older = analysis_begins_late(analysis),
         late = older || analysis->workload.initial_count || analysis->snapshot->tarn.overwritten;
    if (!analysis->has_trace)
        return advise_state(analysis, list);
    if (!spare_of(analysis))
        return true;
    struct advice *advice = add(list, ADVICE_FRAGMENTATION, state->unused, analysis->peak_reserved);
    say(advice,
        "At the peak of reserved memory, %s of %s (%.1f %%) are free, in %s hole%s of at most %s.",
        units_bytes(state->unused).text, units_bytes(state->reserved).text,
        percent(state->unused, state->reserved), units_count(state->holes).text,
        state->holes == 1 ? "" : "s", units_bytes(state->largest_free).text);
    if (older) {
        say(advice, " Most of it was reserved before the recording began, so the recording does "
                    "not show why. Record from "
                    "the start of the program.");
        return true;
    }
    say(advice,
        late ? " While it was recorded, the program never had more than %s allocated."
             : " The program never has more than %s allocated.",
        units_bytes(analysis->at_peak.allocated).text);
    /* the replay also tried the failed requests, for which more was reserved; the advice above says
     * that */
    if (is_tried(analysis, replay))
        return true;
    if (replay && !is_expandable(analysis) && !analysis->snapshot->tarn.there &&
        say_what_replays(advice, analysis, replay))
        return true;
    say_what_may_join(advice, analysis);
    say(advice, "; `tarn replay` says what would be reserved.");
    return true;
}

static bool advise_waiting(const struct analysis *analysis, struct advice_list *list)
{
    const struct analysis_state *state = &analysis->at_peak_reserved;
    if (state->waiting < LEAST_FREE || state->waiting < state->reserved / 10)
        return true;
    struct advice *advice = add(list, ADVICE_WAITING, state->waiting, analysis->peak_reserved);
    say(advice,
        "At the peak of reserved memory, %s of %s (%.1f %%) wait for another stream: %s block%s "
        "freed, but not "
        "reusable yet. Wait for that stream sooner, or allocate on the stream that uses the memory "
        "last.",
        units_bytes(state->waiting).text, units_bytes(state->reserved).text,
        percent(state->waiting, state->reserved), units_count(state->waiting_blocks).text,
        state->waiting_blocks == 1 ? "" : "s");
    return true;
}

static uint64_t bytes_of(const struct analysis *analysis, enum category category)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < analysis->block_count; i++)
        if (analysis->categories[i] == category &&
            analysis_lives(&analysis->blocks[i], analysis->peak))
            bytes += analysis->blocks[i].size;
    return bytes;
}

/* Advice if the optimizer's state is the largest category. */
static bool advise_optimizer(const struct analysis *analysis, struct advice_list *list)
{
    uint64_t state = bytes_of(analysis, CATEGORY_OPTIMIZER),
             weights = bytes_of(analysis, CATEGORY_WEIGHTS);
    if (state < LEAST_FREE || state < analysis->at_peak.allocated / 3 || state < weights ||
        !weights)
        return true;
    struct advice *advice = add(list, ADVICE_OPTIMIZER, state, analysis->peak);
    /* it may include weights that the optimizer replaces, which cannot be told apart from its
     * state */
    if (analysis->renewed >= state / 4)
        say(advice,
            "What the optimizer makes anew in each step has %s, %.0f %% of the peak: its state, "
            "and perhaps the "
            "weights, "
            "if it replaces them.",
            units_bytes(state).text, percent(state, analysis->at_peak.allocated));
    else
        say(advice,
            "The optimizer's state has %s: %.0f %% of the peak, and %.1f times the weights (%s).",
            units_bytes(state).text, percent(state, analysis->at_peak.allocated),
            (double)state / (double)weights, units_bytes(weights).text);
    say(advice, " An optimizer with 8-bit or factored state needs less; so does state that is "
                "sharded over devices or "
                "kept on the host.");
    return true;
}

/* The name of what keeps memory between uses in the recorded program. */
static const char *what_keeps(const struct analysis *analysis)
{
    if (!analysis->snapshot->of_driver)
        return "Leave out calls of empty_cache(), or leave more memory free on the device.";
    return analysis->snapshot->pooled ? "To keep the memory between uses, allocate from a pool, or "
                                        "run the program with a larger SIZE of "
                                        "tarn run --pool=SIZE."
                                      : "To keep the memory between uses, allocate from a pool, or "
                                        "run the program with tarn run --pool.";
}

/* Advice if memory goes to the driver and comes back although the program did not ask for that.
 * Blocks that tarn run --pool served do not count. */
static bool advise_returns(const struct analysis *analysis, struct advice_list *list)
{
    uint64_t returned = 0, again = 0;
    uint32_t first = ANALYSIS_NEVER, last = 0;
    size_t count = 0;
    uint64_t pooled = analysis->snapshot->of_driver ? analysis->snapshot->pooled : 0;
    for (size_t i = 0; i < analysis->range_count; i++)
        if (analysis->ranges[i].size > pooled && analysis->ranges[i].end < first)
            first = analysis->ranges[i].end;
    for (size_t i = 0; i < analysis->range_count; i++) {
        const struct analysis_range *range = &analysis->ranges[i];
        if (range->size <= pooled)
            continue;
        again += range->begin > first ? range->size : 0;
        if (range->end == ANALYSIS_NEVER)
            continue;
        returned += range->size;
        count++;
        last = range->end > last ? range->end : last;
    }
    uint64_t both = returned < again ? returned : again;
    if (both < LEAST_FREE || both < analysis->at_peak_reserved.reserved / 2)
        return true;
    struct advice *advice = add(list, ADVICE_RETURNS, both, first);
    say(advice, "%s were returned to the driver in %s piece%s", units_bytes(returned).text,
        units_count(count).text, count == 1 ? "" : "s");
    if (analysis->has_times)
        say(advice, " from %s to %s", units_time(analysis->times[first]).text,
            units_time(analysis->times[last]).text);
    say(advice,
        ", and %s were taken again afterwards. Each return is a driver call, and the program waits "
        "for the device. %s",
        units_bytes(again).text, what_keeps(analysis));
    return true;
}

bool advice_make(const struct analysis *analysis, const struct advice_replay *replay,
                 struct advice_list *list)
{
    *list = (struct advice_list){0};
    return advise_out_of_memory(analysis, replay, list) && advise_leak(analysis, list) &&
           advise_fragmentation(analysis, replay, list) && advise_waiting(analysis, list) &&
           advise_optimizer(analysis, list) && advise_returns(analysis, list);
}
