/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns call sites: which frame of a stack shows who wanted the memory, and its label.
 *
 * Each frame has a rank, which depends only on its names. A stack's site is its innermost frame of
 * the highest rank. The callers are the frames outside of it whose rank is at least that of a
 * wrapper. A stack's caller has a lower number than the stack, so one pass finds all sites. */
#include "analysis/analysis.h"
#include "analysis/library_files.h"
#include "analysis/paths.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How much a frame shows of who wanted the memory, from least to most. */
enum rank { RANK_MACHINERY, RANK_LIBRARY, RANK_BACKWARD, RANK_WRAPPER, RANK_OWN };

static bool has_any(const char *text, const char *const *parts)
{
    for (; *parts; parts++)
        if (strstr(text, *parts))
            return true;
    return false;
}

static bool is_any(const char *text, size_t length, const char *const *names)
{
    for (; *names; names++)
        if (strlen(*names) == length && memcmp(text, *names, length) == 0)
            return true;
    return false;
}

/* The length of a function's name without the parameters of C++. */
static int name_length(const char *name)
{
    int depth = 0;
    if (!strstr(name, "::"))
        return (int)strlen(name);
    for (const char *at = name; *at; at++) {
        depth += (*at == '<') - (*at == '>');
        bool opens = *at == '(' && at > name && at[-1] != ' ' && at[-1] != ':';
        if (opens && depth <= 0)
            return (int)(at - name);
    }
    return (int)strlen(name);
}

/* True for names of functions that only pass memory on: "allocate", "Buffer::allocate(size_t)",
 * "cuda_malloc". */
static bool is_wrapper(const char *name)
{
    static const char *const names[] = {"alloc",       "allocate", "malloc", "calloc", "realloc",
                                        "do_allocate", "empty",    "zeros",  NULL};
    static const char *const ends[] = {"_alloc", "_malloc", "_allocate", NULL};
    const char *begin = name, *end = name + strcspn(name, "(<");
    for (const char *at = name; at < end; at++)
        if (*at == ':' || *at == '.' || *at == ' ' || *at == '*')
            begin = at + 1;
    if (is_any(begin, (size_t)(end - begin), names))
        return true;
    for (size_t i = 0; ends[i]; i++) {
        size_t length = strlen(ends[i]);
        if ((size_t)(end - begin) > length && memcmp(end - length, ends[i], length) == 0)
            return true;
    }
    return false;
}

static enum rank rank_of(const struct snapshot *snapshot, const struct snapshot_frame *frame,
                         const struct analysis_folding *folding)
{
    /* Parts of names of the code that records stacks, of allocators, and of what every thread
     * begins with. */
    static const char *const machinery[] = {"torch::unwind",
                                            "CapturedTraceback",
                                            "gather_with_cpp",
                                            "CachingAllocator",
                                            "raw_alloc",
                                            "raw_delete",
                                            "at::detail::empty",
                                            "at::detail::_empty",
                                            "execute_native_thread_routine",
                                            "start_thread",
                                            "__libc_start",
                                            "_start",
                                            "clone",
                                            NULL};
    static const char *const backward[] = {"torch::autograd::generated::", NULL};
    static const char *const library_names[] = {
        "c10::", "at::", "torch::", "pybind11::", "std::", NULL};
    static const char *const library_begins[] = {
        "_Py", "Py", "THP", "cfunction_", "method_vectorcall", NULL};
    const char *name = snapshot_text(snapshot, frame->name),
               *file = snapshot_text(snapshot, frame->filename);
    if (has_any(name, machinery))
        return RANK_MACHINERY;
    if (has_any(name, backward))
        return RANK_BACKWARD;
    if (!*file || *file == '<' || *file == '?' || strcmp(file, "torch") == 0 ||
        has_any(name, library_names) || library_has_file(file))
        return RANK_LIBRARY;
    for (size_t i = 0; library_begins[i]; i++)
        if (strncmp(name, library_begins[i], strlen(library_begins[i])) == 0)
            return RANK_LIBRARY;
    for (size_t i = 0; i < folding->fold_count; i++)
        if (strstr(name, folding->folds[i]) || strstr(file, folding->folds[i]))
            return RANK_WRAPPER;
    return is_wrapper(name) ? RANK_WRAPPER : RANK_OWN;
}

/* Call sites under construction. */
struct draft {
    uint8_t *ranks; /* by frame */
    /* for each stack: the innermost stack, itself or a caller, whose frame is shown as a caller; 0:
     * none */
    uint32_t *shown;
    /* for each stack: the stack whose frame is its site; its path at the current depth; at the next
     * depth */
    uint32_t *best, *inner, *next;
    struct paths paths;
};

/* Makes the paths of all stacks: first those of one frame, from them those of two, and so on to the
 * depth. */
static bool make_paths(const struct snapshot *snapshot, struct draft *draft, unsigned depth,
                       uint32_t *sites)
{
    for (size_t i = 1; i < snapshot->stack_count; i++) {
        const struct snapshot_stack *stack = &snapshot->stacks[i];
        uint32_t outer = draft->best[stack->caller];
        uint8_t rank = draft->ranks[stack->frame];
        bool outer_tells_more = outer && draft->ranks[snapshot->stacks[outer].frame] > rank;
        draft->best[i] = outer_tells_more ? outer : (uint32_t)i;
        draft->shown[i] = rank >= RANK_WRAPPER ? (uint32_t)i : draft->shown[stack->caller];
    }
    /* With all callers: the path of a stack's caller exists already */
    for (size_t i = 1; !depth && i < snapshot->stack_count; i++) {
        uint32_t caller = draft->shown[snapshot->stacks[i].caller], own = draft->best[i];
        draft->inner[i] =
            path_of(&draft->paths, snapshot->stacks[i].frame, caller ? draft->inner[caller] : 0);
        sites[i] = draft->inner[own];
        if (!draft->inner[i])
            return false;
    }
    for (unsigned level = 1; level <= depth; level++) {
        uint32_t *made = level == depth ? sites : draft->next;
        for (size_t i = 1; i < snapshot->stack_count; i++) {
            uint32_t own = level == depth ? draft->best[i] : (uint32_t)i;
            uint32_t caller = draft->shown[snapshot->stacks[own].caller];
            made[i] = path_of(&draft->paths, snapshot->stacks[own].frame,
                              level > 1 && caller ? draft->inner[caller] : 0);
            if (!made[i])
                return false;
        }
        draft->next = draft->inner;
        draft->inner = made;
    }
    return true;
}

bool analysis_fold(struct analysis *analysis, const struct analysis_folding *folding)
{
    const struct snapshot *snapshot = analysis->snapshot;
    size_t stacks = snapshot->stack_count + 1;
    uint32_t *sites = calloc(stacks, sizeof *sites), *levels = calloc(2 * stacks, sizeof *levels);
    struct draft draft = {.ranks = malloc(snapshot->frame_count + 1),
                          .shown = calloc(stacks, sizeof *draft.shown),
                          .best = calloc(stacks, sizeof *draft.best),
                          .inner = levels,
                          .next = levels ? levels + stacks : NULL};
    bool made =
        paths_init(&draft.paths) && sites && levels && draft.ranks && draft.shown && draft.best;
    for (size_t i = 0; made && i < snapshot->frame_count; i++)
        draft.ranks[i] = (uint8_t)rank_of(snapshot, &snapshot->frames[i], folding);
    made = made && make_paths(snapshot, &draft, folding->depth, sites);
    if (made) {
        free(analysis->sites);
        free(analysis->paths);
        analysis->sites = sites;
        analysis->paths = draft.paths.list;
        analysis->path_count = draft.paths.count;
    } else {
        free(sites);
        free(draft.paths.list);
    }
    paths_finish(&draft.paths);
    free(draft.ranks);
    free(draft.shown);
    free(draft.best);
    free(levels);
    return made;
}

/* --- labels --- */

static int frame_label(const struct snapshot *snapshot, const struct snapshot_frame *frame,
                       char *label, size_t size)
{
    static const char prefix[] = "torch::autograd::generated::";
    const char *name = snapshot_text(snapshot, frame->name),
               *file = snapshot_text(snapshot, frame->filename);
    const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    if (strncmp(name, prefix, sizeof prefix - 1) == 0)
        name += sizeof prefix - 1;
    bool source = *base && *base != '?';
    char line[16] = "";
    if (frame->line)
        snprintf(line, sizeof line, ":%" PRIu32, frame->line);
    return snprintf(label, size, "%.*s%s%s%s", name_length(name), name, source ? "  " : "",
                    source ? base : "", line);
}

int analysis_site_label(const struct analysis *analysis, uint32_t site, char *label, size_t size)
{
    if (!site || site == ANALYSIS_SITE_BEFORE)
        return snprintf(label, size, "%s", site ? "from before the recording" : "no stack");
    char none[1] = ""; /* what does not fit is counted and not written */
    size_t written = 0;
    for (uint32_t at = site; at; at = analysis->paths[at].caller) {
        size_t room = written < size ? size - written : 0;
        if (at != site)
            written += (size_t)snprintf(room ? label + written : none, room, " < ");
        room = written < size ? size - written : 0;
        written += (size_t)frame_label(analysis->snapshot,
                                       &analysis->snapshot->frames[analysis->paths[at].frame],
                                       room ? label + written : none, room);
    }
    return (int)written;
}
