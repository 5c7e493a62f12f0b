/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the sets of heaps: those of a store, those that serve every store, those that may lend
 * memory, and those that nobody uses. So no call looks at heaps that do not concern it. A set
 * changes under the lock of the heap that enters or leaves it, and the arena's `sets.lock`. A walk
 * holds neither lock between two steps. It continues by the number of the last heap, which never
 * changes. So heaps may come and go during a walk.
 *
 * A heap is among the givers from each change until a search has found nothing in it, or nothing
 * before some work has ended (idle/awaited.c). So searches look at a heap once for all changes in
 * between.
 *
 * The lenders may include heaps that have nothing to lend, but no heap that has something is
 * missing. The same is true of a stream's list of unmarked heaps, whose open batches need a mark
 * before the stream captures. */
#include "memory/heap/heap.h"
#include "memory/heap/help.h"
#include "memory/heap/idle/awaited.h"
#include "memory/heap/parked.h"

#define HEAP_OF(at) (TREE_ENTRY(at, struct heap_member, node)->heap)

static bool is_newer(const struct tree_node *a, const struct tree_node *b)
{
    return HEAP_OF(a)->number > HEAP_OF(b)->number;
}

static bool is_older(const struct tree_node *node, uint64_t number)
{
    return HEAP_OF(node)->number < number;
}

static void enter(struct heap *heap, enum heap_set_kind kind, struct heap_set *set)
{
    struct heap_member *member = &heap->sets.of[kind];
    if (member->set == set)
        return;
    if (member->set)
        tree_remove(&member->set->heaps, &member->node);
    member->heap = heap;
    member->set = set;
    if (set)
        tree_insert_by(&set->heaps, &member->node, is_newer);
}

/* The list of a stream's heaps whose open batch may not be empty. */
static void unmarked_enter(struct heap *heap)
{
    struct stream *stream = heap->stream;
    if (heap->sets.unmarked)
        return;
    heap->sets.unmarked = true;
    heap->sets.previous_unmarked = NULL;
    heap->sets.next_unmarked = stream->unmarked;
    if (stream->unmarked)
        stream->unmarked->sets.previous_unmarked = heap;
    stream->unmarked = heap;
}

static void unmarked_leave(struct heap *heap)
{
    struct heap *next = heap->sets.next_unmarked, *previous = heap->sets.previous_unmarked;
    if (!heap->sets.unmarked)
        return;
    heap->sets.unmarked = false;
    *(previous ? &previous->sets.next_unmarked : &heap->stream->unmarked) = next;
    if (next)
        next->sets.previous_unmarked = previous;
}

struct heap *heap_next_unmarked(struct arena *arena, const struct stream *stream,
                                const struct heap *heap)
{
    mutex_lock(&arena->sets.lock);
    struct heap *next = heap ? heap->sets.next_unmarked : stream->unmarked;
    mutex_unlock(&arena->sets.lock);
    return next;
}

/* The newest heap in the set whose number is lower than `number`. */
static struct heap *older_locked(const struct heap_set *set, uint64_t number)
{
    struct tree_node *node = tree_find_first(&set->heaps, is_older, number);
    return node ? HEAP_OF(node) : NULL;
}

/* The newest heap older than `heap`, which may have left the set; NULL: the newest of all. */
static struct heap *next_locked(const struct heap_set *set, enum heap_set_kind kind,
                                const struct heap *heap)
{
    if (!heap || heap->sets.of[kind].set != set)
        return older_locked(set, heap ? heap->number : UINT64_MAX);
    struct tree_node *node = tree_next(&heap->sets.of[kind].node);
    return node ? HEAP_OF(node) : NULL;
}

struct heap *heap_next_of(struct store *store, const struct heap *heap)
{
    mutex_lock(&store->arena->sets.lock);
    struct heap *next = next_locked(&store->sets.all, HEAPS_OF_STORE, heap);
    store->arena->sets.looks += next != NULL;
    mutex_unlock(&store->arena->sets.lock);
    return next;
}

/* The one of two heaps with the higher number. Each may be NULL. */
static struct heap *newer(struct heap *a, struct heap *b)
{
    return !b || (a && a->number > b->number) ? a : b;
}

struct heap *heap_next_serving(struct store *wanting, const struct heap *heap)
{
    struct arena *arena = wanting->arena;
    mutex_lock(&arena->sets.lock);
    struct heap *own = next_locked(&wanting->sets.all, HEAPS_OF_STORE, heap);
    struct heap *common = next_locked(&arena->sets.common, HEAPS_COMMON, heap);
    arena->sets.looks += own || common;
    mutex_unlock(&arena->sets.lock);
    return newer(own, common);
}

bool store_gives_itself_nothing(const struct store *store)
{
    return store->kind.fixed || store_is_held(store);
}

struct heap *heap_next_giving(struct store *wanting, const struct heap *heap)
{
    struct arena *arena = wanting->arena;
    bool others = store_gives_itself_nothing(wanting);
    mutex_lock(&arena->sets.lock);
    struct heap *own = others ? NULL : next_locked(&wanting->sets.givers, HEAPS_GIVING, heap);
    struct heap *common = next_locked(&arena->sets.givers, HEAPS_GIVING, heap);
    arena->sets.looks += own || common;
    mutex_unlock(&arena->sets.lock);
    return newer(own, common);
}

struct heap *heap_next_changed(struct arena *arena, const struct heap *heap)
{
    mutex_lock(&arena->sets.lock);
    struct heap *next = newer(next_locked(&arena->sets.changed, HEAPS_CHANGED, heap),
                              next_locked(&arena->sets.changed_helpers, HEAPS_CHANGED, heap));
    arena->sets.looks += next != NULL;
    mutex_unlock(&arena->sets.lock);
    return next;
}

struct heap *heap_next_changed_helper(struct arena *arena, const struct heap *heap)
{
    mutex_lock(&arena->sets.lock);
    struct heap *next = next_locked(&arena->sets.changed_helpers, HEAPS_CHANGED, heap);
    arena->sets.looks += next != NULL;
    mutex_unlock(&arena->sets.lock);
    return next;
}

struct heap *heap_next_anchored(struct arena *arena, const struct heap *heap)
{
    mutex_lock(&arena->sets.lock);
    struct heap *next = next_locked(&arena->sets.anchored, HEAPS_ANCHORED, heap);
    arena->sets.looks += next != NULL;
    mutex_unlock(&arena->sets.lock);
    return next;
}

struct heap *heap_walk_next(struct heap_walk *walk)
{
    struct heap_set *set = walk->set;
    struct heap *before = walk->heap;
    mutex_lock(&walk->arena->sets.lock);
    walk->heap = NULL;
    if (before && walk->vain >= HEAP_LOOKS) {
        set->from = before->number;
    } else {
        if (before || set->from)
            walk->heap = older_locked(set, before ? before->number : set->from);
        if (!before && !walk->heap)
            walk->heap = older_locked(set, UINT64_MAX);
        set->from = 0;
    }
    walk->arena->sets.looks += walk->heap != NULL;
    mutex_unlock(&walk->arena->sets.lock);
    return walk->heap;
}

void heap_enter_aside(struct heap *heap, struct store *store)
{
    enter(heap, HEAPS_ASIDE, store ? &store->sets.aside : NULL);
}

/* Updates the sets that depend on what is known of a heap. */
static void enter_known(struct heap *heap, bool unused)
{
    struct arena *arena = heap->arena;
    struct heap_set *givers =
        store_is_common(heap->store) ? &arena->sets.givers : &heap->store->sets.givers;
    bool helps = store_has(heap->store, STORE_HELPS);
    struct heap_set *changed = helps ? &arena->sets.changed_helpers : &arena->sets.changed;
    bool gives = !unused && !(heap->sets.known & (HEAP_BARE | HEAP_AWAITS));
    enter(heap, HEAPS_GIVING, gives ? givers : NULL);
    enter(heap, HEAPS_CHANGED, unused || heap->sets.known & HEAP_SUMMED ? NULL : changed);
    enter(heap, HEAPS_ANCHORED, heap->sets.known & HEAP_ANCHORED ? &arena->sets.anchored : NULL);
}

/* Sets what is known of a heap. A heap enters the givers before it leaves the awaited ones, so a
 * search finds it in one of the two. */
static void set_known_locked(struct heap *heap, unsigned known)
{
    mutex_lock(&heap->arena->sets.lock);
    heap->sets.known = known;
    enter_known(heap, !heap->sets.of[HEAPS_OF_STORE].set);
    mutex_unlock(&heap->arena->sets.lock);
    if (heap->awaits.tree && !(known & HEAP_AWAITS))
        awaited_end_locked(heap);
}

void heap_changed_locked(struct heap *heap)
{
    set_known_locked(heap, 0);
}

void heap_known_locked(struct heap *heap, unsigned known)
{
    set_known_locked(heap, heap->sets.known | known);
}

void heap_known_end_locked(struct heap *heap, unsigned known)
{
    set_known_locked(heap, heap->sets.known & ~known);
}

void heap_sets_update_locked(struct heap *heap, bool unused)
{
    struct store *store = heap->store;
    struct arena *arena = heap->arena;
    bool behind = atomic_load(&store->left_behind), common = !unused && store_is_common(store);
    struct heap_set *nobodys = behind          ? &arena->sets.abandoned
                               : heap->retired ? &store->sets.retired
                                               : NULL;
    heap->sets.lends = heap->sets.lends && !unused;
    heap->sets.known &= ~(unsigned)(HEAP_AWAITS | HEAP_ANCHORED);
    mutex_lock(&arena->sets.lock);
    if (heap->offers) { /* they were another life's, or are no more: see heap_helps_locked() */
        heap_offer_end(heap);
        heap->sets.known = 0;
    }
    enter(heap, HEAPS_OF_STORE, unused ? NULL : &store->sets.all);
    if (common != !!heap->sets.of[HEAPS_COMMON].set)
        heap_sums_are_common(arena, &heap->summed, common);
    enter(heap, HEAPS_COMMON, common ? &arena->sets.common : NULL);
    enter_known(heap, unused);
    enter(heap, HEAPS_LENDING, heap->sets.lends ? &store->sets.lenders : NULL);
    enter(heap, HEAPS_OF_NOBODY, unused ? NULL : nobodys);
    if (unused || heap->retired)
        unmarked_leave(heap);
    mutex_unlock(&arena->sets.lock);
    if (heap->awaits.tree) /* in the tree of its store, which may be another now */
        awaited_end_locked(heap);
}

void heap_news_locked(struct heap *heap, size_t size)
{
    heap->sets.lends = heap->sets.lends || size >= heap->arena->granule;
    mutex_lock(&heap->arena->sets.lock);
    if (heap->sets.lends)
        enter(heap, HEAPS_LENDING, &heap->store->sets.lenders);
    if (!heap->retired)
        unmarked_enter(heap);
    mutex_unlock(&heap->arena->sets.lock);
    heap->sets.news = heap->sets.lends ? SIZE_MAX : heap->arena->granule;
}

/* First parked blocks become free spans, and the new states make the next free do so too. So no
 * block is missed. */
void heap_lends_end_locked(struct heap *heap)
{
    size_t granule = heap->arena->granule;
    if (!heap->sets.lends || zones_longest_free(&heap->zones) >= granule)
        return;
    parked_end_locked(heap);
    if (zones_longest_free(&heap->zones) >= granule)
        return;
    heap->sets.lends = false;
    if (heap->sets.news > heap->arena->granule)
        heap->sets.news = heap->arena->granule;
    mutex_lock(&heap->arena->sets.lock);
    enter(heap, HEAPS_LENDING, NULL);
    mutex_unlock(&heap->arena->sets.lock);
}

/* Parked blocks: see heap_lends_end_locked(). */
void heap_unmarked_end_locked(struct heap *heap)
{
    parked_end_locked(heap);
    if (heap->batches.open_used)
        return;
    heap->sets.news = 0;
    mutex_lock(&heap->arena->sets.lock);
    unmarked_leave(heap);
    mutex_unlock(&heap->arena->sets.lock);
}

void heap_nobodys_end_locked(struct heap *heap)
{
    if (zones_have_runs(&heap->zones))
        return;
    mutex_lock(&heap->arena->sets.lock);
    enter(heap, HEAPS_OF_NOBODY, NULL);
    mutex_unlock(&heap->arena->sets.lock);
}
