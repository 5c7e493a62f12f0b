/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the categories of blocks. The rules are in category.h. Tags play no part. */
#include "analysis/category.h"
#include "analysis/library_files.h"

#include <stdlib.h>
#include <string.h>

/* If more stacks of the forward pass than this keep something, the model is being trained. */
#define FORWARD_STACKS 8

/* What the frames of a stack show; bits. */
enum place {
    IN_WORKSPACE = 1,
    IN_OPTIMIZER = 2,
    IN_BACKWARD = 4,
    IN_FORWARD = 8,
    IN_MODULE = 16,
    RULE_SHIFT = 5
};

/* Categories under construction. */
struct draft {
    const struct analysis *analysis;
    /* for each stack: bits of enum place; above them a user's rule, as category + 1 */
    uint16_t *places;
    /* for each backward pass: the moments of its first and its last allocation */
    uint32_t *first, *last;
    /* moments of all allocations in backward passes, except those that recompute the forward
     * pass */
    uint32_t *births;
    uint64_t *sizes; /* of weights, sorted */
    /* for each block: the moments of its stack's next allocation and of the one after that */
    uint32_t *next[2];
    /* stacks of the forward pass that keep something; counting stops above FORWARD_STACKS */
    uint32_t *kept;
    size_t pass_count, birth_count, size_count, kept_count;
    bool bare;  /* backward passes have empty stacks, because only Python's frames were recorded */
    bool moved; /* a module created or moved weights in the recording */
    bool state; /* an optimizer created state in the recording, or there is no optimizer */
    uint8_t *categories;
};

static const char *const category_names[CATEGORY_COUNT] = {
    "unknown", "weights",    "gradients",   "optimizer",       "activations",
    "caches",  "workspaces", "temporaries", "kept from before"};

const char *category_name(enum category category)
{
    return category_names[category];
}

enum category category_of_name(const char *name, size_t length)
{
    for (enum category i = CATEGORY_WEIGHTS; i < CATEGORY_BEFORE; i++)
        if (strlen(category_names[i]) == length && memcmp(category_names[i], name, length) == 0)
            return i;
    return CATEGORY_COUNT;
}

/* --- stacks --- */

static unsigned place_of(const struct snapshot *snapshot, const struct snapshot_frame *frame,
                         const struct category_rule *rules, size_t rule_count)
{
    const char *name = snapshot_text(snapshot, frame->name),
               *file = snapshot_text(snapshot, frame->filename);
    for (size_t i = 0; i < rule_count; i++)
        if (strstr(name, rules[i].text) || strstr(file, rules[i].text))
            return ((unsigned)rules[i].category + 1) << RULE_SHIFT;
    if (strstr(name, "orkspace") || strstr(name, "run_conv_plan"))
        return IN_WORKSPACE;
    if (strstr(name, "torch::autograd::Engine::") ||
        (strstr(name, "torch::autograd::generated::") && strstr(name, "Backward")) ||
        strstr(name, "autograd::engine::evaluate_function")) /* as the profiler calls it */
        return IN_BACKWARD;
    if (strncmp(name, "Optimizer.step#", 15) == 0) /* the profiler's */
        return IN_OPTIMIZER;
    size_t length = strlen(file);
    /* programs in other languages have functions and files of these names too */
    if (length < 3 || strcmp(file + length - 3, ".py") != 0)
        return 0;
    if (strstr(file, "/optim/") || strstr(file, "optimizer"))
        return IN_OPTIMIZER;
    bool forward = strcmp(name, "_call_impl") == 0 || strcmp(name, "_wrapped_call_impl") == 0 ||
                   strcmp(name, "forward") == 0;
    if (forward)
        return IN_FORWARD;
    const char *torch = library_torch_part(file);
    bool module = torch && (strncmp(torch, "nn/modules/", strlen("nn/modules/")) == 0 ||
                            strcmp(torch, "nn/parameter.py") == 0);
    return module ? IN_MODULE : 0;
}

/* Finds out what each stack shows: the sum of its frames, and the rule of its innermost frame that
 * has one. False if no stack shows anything. */
static bool find_places(struct draft *draft, const struct category_rule *rules, size_t rule_count)
{
    const struct snapshot *snapshot = draft->analysis->snapshot;
    unsigned seen = 0;
    for (size_t i = 1; i < snapshot->stack_count; i++) {
        const struct snapshot_stack *stack = &snapshot->stacks[i];
        unsigned outer = draft->places[stack->caller];
        unsigned own = place_of(snapshot, &snapshot->frames[stack->frame], rules, rule_count);
        unsigned rule = own >> RULE_SHIFT ? own >> RULE_SHIFT : outer >> RULE_SHIFT;
        draft->places[i] =
            (uint16_t)(rule << RULE_SHIFT | ((own | outer) & ((1U << RULE_SHIFT) - 1)));
        seen |= draft->places[i];
    }
    draft->bare = !(seen & IN_BACKWARD);
    return (seen & (IN_OPTIMIZER | IN_BACKWARD | IN_FORWARD)) || seen >> RULE_SHIFT;
}

static unsigned block_place(const struct draft *draft, const struct analysis_block *block)
{
    if (!block->stack && draft->bare && block->begin)
        return IN_BACKWARD;
    return draft->places[block->stack] & (IN_WORKSPACE | IN_OPTIMIZER | IN_BACKWARD | IN_FORWARD);
}

/* --- time --- */

/* Finds the backward passes. An allocation in a forward pass or an optimizer ends one. */
static void find_passes(struct draft *draft)
{
    const struct analysis *analysis = draft->analysis;
    bool open = false;
    for (size_t i = 0; i < analysis->block_count; i++) {
        const struct analysis_block *block = &analysis->blocks[i];
        unsigned place = block_place(draft, block);
        if (!block->begin)
            continue;
        if (place & IN_BACKWARD) {
            if (!open)
                draft->first[draft->pass_count++] = block->begin;
            draft->last[draft->pass_count - 1] = block->begin;
            if (!(place & IN_FORWARD))
                draft->births[draft->birth_count++] = block->begin;
            open = true;
        } else if (place & (IN_FORWARD | IN_OPTIMIZER)) {
            open = false;
        }
    }
}

/* How many of `count` ascending moments are at or before `moment`. */
static size_t until(const uint32_t *moments, size_t count, uint32_t moment)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (moments[middle] <= moment)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Finds when each block's stack allocates next, and after that; ANALYSIS_NEVER if it does not. */
static bool find_next(struct draft *draft)
{
    const struct analysis *analysis = draft->analysis;
    size_t stacks = analysis->snapshot->stack_count;
    uint32_t *ahead = malloc(2 * (stacks + 1) * sizeof *ahead);
    if (!ahead)
        return false;
    memset(ahead, 0xff, 2 * (stacks + 1) * sizeof *ahead);
    for (size_t i = analysis->block_count; i-- > 0;) {
        uint32_t *two = ahead + 2 * (size_t)analysis->blocks[i].stack;
        draft->next[0][i] = two[0];
        draft->next[1][i] = two[1];
        two[1] = two[0];
        two[0] = analysis->blocks[i].begin;
    }
    free(ahead);
    return true;
}

/* Whether a block outlives its step: it is never freed, or it is freed after two backward passes
 * have begun and ended since its allocation. If no pass begins after its allocation, it must live
 * for more than half of the events. */
static bool stays(const struct draft *draft, const struct analysis_block *block)
{
    size_t pass = until(draft->first, draft->pass_count, block->begin);
    if (block->freed == ANALYSIS_NEVER)
        return true;
    if (pass + 1 < draft->pass_count)
        return block->freed > draft->last[pass + 1];
    return pass == draft->pass_count &&
           block->freed - block->begin > draft->analysis->event_count / 2;
}

static bool outlives_two_passes(const struct draft *draft, const struct analysis_block *block)
{
    size_t pass = until(draft->first, draft->pass_count, block->begin);
    return pass + 1 < draft->pass_count && block->freed > draft->last[pass + 1];
}

/* True if a block lives when a backward pass allocates something after it. */
static bool meets_backward(const struct draft *draft, const struct analysis_block *block)
{
    size_t next = until(draft->births, draft->birth_count, block->begin);
    return next < draft->birth_count && block->freed > draft->births[next];
}

/* True if a block was freed while an optimizer ran. */
static bool freed_by_optimizer(const struct draft *draft, const struct analysis_block *block)
{
    const struct analysis *analysis = draft->analysis;
    size_t low = 0, high = analysis->block_count;
    while (low < high) { /* finds the first block that was allocated after the free */
        size_t middle = low + (high - low) / 2;
        if (analysis->blocks[middle].begin <= block->freed)
            low = middle + 1;
        else
            high = middle;
    }
    return low && low < analysis->block_count &&
           block_place(draft, &analysis->blocks[low - 1]) & IN_OPTIMIZER &&
           block_place(draft, &analysis->blocks[low]) & IN_OPTIMIZER;
}

/* True if the optimizer freed the block and a backward pass ran while it lived. State that the
 * optimizer replaces in each step ends like this. */
static bool replaced_by_optimizer(const struct draft *draft, const struct analysis_block *block)
{
    return freed_by_optimizer(draft, block) && meets_backward(draft, block);
}

/* True if a block lives when its stack has allocated twice more. For a stack's last two blocks: if
 * it is never freed. */
static bool outlives_two_more(const struct draft *draft, size_t i)
{
    const struct analysis_block *block = &draft->analysis->blocks[i];
    return draft->next[1][i] != ANALYSIS_NEVER ? block->freed > draft->next[1][i]
                                               : block->freed == ANALYSIS_NEVER;
}

/* --- sizes --- */

static int compare_sizes(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static bool is_weight(const struct draft *draft, const struct analysis_block *block)
{
    return !block_place(draft, block) && stays(draft, block);
}

static void find_weights(struct draft *draft)
{
    const struct analysis *analysis = draft->analysis;
    for (size_t i = 0; i < analysis->block_count; i++)
        if (is_weight(draft, &analysis->blocks[i]))
            draft->sizes[draft->size_count++] = analysis->blocks[i].size;
    qsort(draft->sizes, draft->size_count, sizeof *draft->sizes, compare_sizes);
}

static bool is_weight_size(const struct draft *draft, uint64_t size)
{
    return !draft->size_count ||
           bsearch(&size, draft->sizes, draft->size_count, sizeof size, compare_sizes);
}

/* --- the rules --- */

/* Notes that a stack of the forward pass keeps something. */
static void note_kept(struct draft *draft, uint32_t stack)
{
    for (size_t i = 0; i < draft->kept_count; i++)
        if (draft->kept[i] == stack)
            return;
    if (draft->kept_count <= FORWARD_STACKS)
        draft->kept[draft->kept_count++] = stack;
}

static enum category of_forward(struct draft *draft, size_t i)
{
    const struct analysis_block *block = &draft->analysis->blocks[i];
    if (outlives_two_passes(draft, block))
        return CATEGORY_CACHES;
    if (meets_backward(draft, block))
        return CATEGORY_ACTIVATIONS;
    if (until(draft->births, draft->birth_count, block->begin) < draft->birth_count ||
        !outlives_two_more(draft, i))
        return CATEGORY_TEMPORARIES;
    note_kept(draft, block->stack);
    return CATEGORY_CACHES;
}

static enum category of_backward(const struct draft *draft, const struct analysis_block *block)
{
    size_t pass = until(draft->first, draft->pass_count, block->begin);
    bool survives = pass && block->freed > draft->last[pass - 1];
    return survives && is_weight_size(draft, block->size) ? CATEGORY_GRADIENTS
                                                          : CATEGORY_TEMPORARIES;
}

/* True for what a program that only runs its model keeps in addition to its weights: room for keys
 * and values. */
static bool of_server(const struct draft *draft, const struct analysis_block *block)
{
    return draft->moved && !draft->pass_count && block->begin &&
           !(draft->places[block->stack] & IN_MODULE);
}

static enum category of_block(struct draft *draft, size_t i)
{
    const struct analysis_block *block = &draft->analysis->blocks[i];
    unsigned place = block_place(draft, block);
    if (draft->places[block->stack] >> RULE_SHIFT)
        return (enum category)((draft->places[block->stack] >> RULE_SHIFT) - 1);
    if (place & IN_WORKSPACE)
        return CATEGORY_WORKSPACES;
    if (place & IN_OPTIMIZER)
        return stays(draft, block) || meets_backward(draft, block) ? CATEGORY_OPTIMIZER
                                                                   : CATEGORY_TEMPORARIES;
    if (place & IN_FORWARD)
        return of_forward(draft, i);
    if (place & IN_BACKWARD)
        return of_backward(draft, block);
    if (stays(draft, block) && of_server(draft, block))
        return CATEGORY_CACHES;
    if (stays(draft, block))
        return block->begin || draft->state ? CATEGORY_WEIGHTS : CATEGORY_BEFORE;
    if (!block->begin && replaced_by_optimizer(draft, block))
        return CATEGORY_OPTIMIZER;
    return meets_backward(draft, block) ? CATEGORY_ACTIVATIONS : CATEGORY_TEMPORARIES;
}

/* The category of a block in a state without a trace, which shows no lifetimes. */
static enum category of_state(const struct draft *draft, const struct analysis_block *block)
{
    unsigned place = draft->places[block->stack];
    if (place >> RULE_SHIFT)
        return (enum category)((place >> RULE_SHIFT) - 1);
    return place & IN_WORKSPACE   ? CATEGORY_WORKSPACES
           : place & IN_OPTIMIZER ? CATEGORY_OPTIMIZER
           : place & IN_FORWARD   ? CATEGORY_UNKNOWN
           : place & IN_BACKWARD  ? CATEGORY_GRADIENTS
           : block->stack         ? CATEGORY_WEIGHTS
                                  : CATEGORY_UNKNOWN;
}

static void apply(struct draft *draft)
{
    const struct analysis *analysis = draft->analysis;
    bool optimizer = false;
    find_passes(draft);
    find_weights(draft);
    for (size_t i = 0; i < analysis->block_count; i++) {
        const struct analysis_block *block = &analysis->blocks[i];
        bool of_optimizer = block_place(draft, block) & IN_OPTIMIZER;
        optimizer = optimizer || of_optimizer;
        draft->moved =
            draft->moved || (block->begin && !block_place(draft, block) && stays(draft, block) &&
                             draft->places[block->stack] & IN_MODULE);
        draft->state =
            draft->state || (of_optimizer && (stays(draft, block) || meets_backward(draft, block)));
    }
    draft->state = draft->state || !optimizer;
    for (size_t i = 0; i < analysis->block_count; i++)
        draft->categories[i] =
            (uint8_t)(analysis->has_trace ? of_block(draft, i)
                                          : of_state(draft, &analysis->blocks[i]));
    if (draft->kept_count > FORWARD_STACKS)
        for (size_t i = 0; i < analysis->block_count; i++)
            if (draft->categories[i] == CATEGORY_CACHES &&
                !outlives_two_passes(draft, &analysis->blocks[i]) &&
                !(draft->places[analysis->blocks[i].stack] >> RULE_SHIFT))
                draft->categories[i] = CATEGORY_ACTIVATIONS;
}

bool categories_make(struct analysis *analysis, const struct category_rule *rules,
                     size_t rule_count)
{
    size_t blocks = analysis->block_count + 1;
    struct draft draft = {
        .analysis = analysis,
        .places = calloc(analysis->snapshot->stack_count + 1, sizeof *draft.places),
        .first = malloc(blocks * sizeof *draft.first),
        .last = malloc(blocks * sizeof *draft.last),
        .births = malloc(blocks * sizeof *draft.births),
        .sizes = malloc(blocks * sizeof *draft.sizes),
        .next = {malloc(blocks * sizeof *draft.next[0]), malloc(blocks * sizeof *draft.next[1])},
        .kept = malloc((FORWARD_STACKS + 1) * sizeof *draft.kept),
        .categories = calloc(blocks, sizeof *draft.categories)};
    bool made = draft.places && draft.first && draft.last && draft.births && draft.sizes &&
                draft.next[0] && draft.next[1] && draft.kept && draft.categories &&
                find_next(&draft);
    if (made && find_places(&draft, rules, rule_count))
        apply(&draft);
    analysis->renewed = 0;
    for (size_t i = 0; made && i < analysis->block_count; i++)
        if ((draft.categories[i] == CATEGORY_OPTIMIZER || !analysis->blocks[i].begin) &&
            analysis->blocks[i].freed != ANALYSIS_NEVER &&
            freed_by_optimizer(&draft, &analysis->blocks[i]))
            analysis->renewed += analysis->blocks[i].size;
    if (made) {
        free(analysis->categories);
        analysis->categories = draft.categories;
    } else {
        free(draft.categories);
    }
    free(draft.places);
    free(draft.first);
    free(draft.last);
    free(draft.births);
    free(draft.sizes);
    free(draft.next[0]);
    free(draft.next[1]);
    free(draft.kept);
    return made;
}
