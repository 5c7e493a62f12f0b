/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the index of awaited marks. Each arena has one tree for the heaps whose memory serves every
 * store, and each other store has one for its own, as they have sets of givers. A tree is ordered
 * by stream, and then by the order in which the stream's marks were recorded. While the first mark
 * of a stream has not ended, no later one has. So a search asks the driver once per stream, however
 * many heaps await its work.
 *
 * A heap is in a tree only if the end of a mark, or of an anchor, shows that it has something to
 * give. It leaves when anything in it changes, as a bare heap becomes a giver again (sets.h). Under
 * the heap's lock and the arena's `sets.lock`; a search reads with the latter alone, and asks about
 * a mark with no lock. */
#include "memory/heap/idle/awaited.h"
#include "memory/heap/heap.h"
#include "memory/heap/idle/wait.h"

#define AWAITED_OF(at) TREE_ENTRY(at, struct awaited, node)

/* A stream in a tree. NULL is before the first. */
struct place {
    const struct stream *stream;
    unsigned incarnation;
};

static bool comes_behind(const struct tree_node *node, uint64_t after)
{
    const struct place *place = (const struct place *)(uintptr_t)after;
    struct mark_place mark = mark_place(AWAITED_OF(node)->mark);
    if (mark.stream != place->stream)
        return (uintptr_t)mark.stream > (uintptr_t)place->stream;
    return mark.incarnation > place->incarnation;
}

static bool is_before(const struct tree_node *a, const struct tree_node *b)
{
    struct mark_place x = mark_place(AWAITED_OF(a)->mark), y = mark_place(AWAITED_OF(b)->mark);
    if (x.stream != y.stream)
        return (uintptr_t)x.stream < (uintptr_t)y.stream;
    if (x.incarnation != y.incarnation)
        return x.incarnation < y.incarnation;
    return x.number != y.number ? x.number < y.number : (uintptr_t)a < (uintptr_t)b;
}

/* The first mark of the next stream, kept, and its heap; the place moves to that stream. NULL:
 * there is no more. */
static struct mark *next_stream(struct arena *arena, const struct awaited_tree *tree,
                                struct place *place, struct heap **heap)
{
    struct mark *mark = NULL;
    mutex_lock(&arena->sets.lock);
    struct tree_node *node = tree_find_first(&tree->marks, comes_behind, (uintptr_t)place);
    if (node) {
        mark = mark_keep(AWAITED_OF(node)->mark);
        *heap = AWAITED_OF(node)->heap;
        arena->sets.looks++;
    }
    mutex_unlock(&arena->sets.lock);
    return mark;
}

static void move_behind(struct place *place, const struct mark *mark)
{
    struct mark_place at = mark_place(mark);
    *place = (struct place){at.stream, at.incarnation};
}

/* The heap's marks ---------------------------------------------------------------------------- */

/* The next place for a mark of the heap; NULL starts and ends. */
static struct awaited *next_of(struct heap *heap, const struct awaited *awaited)
{
    struct use_queue *queue = heap->waiting.queues;
    if (!awaited)
        return &heap->awaits.own;
    if (awaited != &heap->awaits.own)
        queue = TREE_ENTRY(awaited, struct use_queue, awaited)->next;
    return queue ? &queue->awaited : NULL;
}

/* Notes a mark whose work goes on. */
static bool note(struct heap *heap, struct awaited *awaited, struct mark *mark)
{
    if (!mark || mark_query(mark) != TARN_ERROR_NOT_READY)
        return false;
    awaited->heap = heap;
    awaited->mark = mark_keep(mark);
    heap->awaits.kept = true;
    return true;
}

static bool note_uses_locked(struct heap *heap)
{
    if (heap->waiting.watched)
        return false; /* debug mode looks at them */
    for (struct use_queue *queue = heap->waiting.queues; queue && heap->waiting.blocks;
         queue = queue->next) {
        const struct use *use = queue->marked.first;
        if (queue->unmarked.first || (use && !note(heap, &queue->awaited, use->mark)))
            return false;
    }
    return true;
}

/* Whether a free span that contains a piece could give one now or after its batch, so no anchor is
 * in the way. Whether the store is held does not matter: that ends without a word to the heap. */
static bool may_leave_locked(const struct heap *heap, const struct span *span)
{
    uintptr_t start, end;
    if (!heap->store->kind.pieces)
        return !atomic_load(&span->run->anchors);
    span_whole_pieces(heap->arena, span, 1, SIZE_MAX, &start, &end);
    return start != end;
}

/* Finds the oldest batch whose end would make a piece idle (UINT64_MAX: none), and whether anchors
 * hold a piece. False if a piece is idle. */
static bool is_busy_locked(const struct heap *heap, uint64_t *oldest, bool *anchored)
{
    *oldest = UINT64_MAX;
    *anchored = false;
    for (int zone = 0; zone < ZONES; zone++)
        for (struct tree_node *node = tree_last(&heap->zones.of[zone].free); node;
             node = tree_previous(node)) {
            const struct span *span = TREE_ENTRY(node, struct span, by_size);
            if (heap->store->kind.pieces && span->size < heap->arena->granule)
                break;
            if (!span_covers_piece_locked(heap, span))
                continue;
            if (!may_leave_locked(heap, span))
                *anchored = true;
            else if (span_idle_locked(heap, span))
                return false;
            else
                *oldest = span->batch < *oldest ? span->batch : *oldest;
        }
    return true;
}

static void list_all_locked(struct heap *heap, unsigned known)
{
    struct store *store = heap->store;
    struct arena *arena = heap->arena;
    heap->awaits.tree = store_is_common(store) ? &arena->sets.awaited : &store->sets.awaited;
    heap->awaits.waits = heap_waits_locked(heap);
    mutex_lock(&arena->sets.lock);
    heap->awaits.tree->waits += heap->awaits.waits;
    for (struct awaited *awaited = next_of(heap, NULL); awaited; awaited = next_of(heap, awaited))
        if (awaited->mark)
            tree_insert_by(&heap->awaits.tree->marks, &awaited->node, is_before);
    mutex_unlock(&arena->sets.lock);
    heap_known_locked(heap, known);
}

void awaited_end_locked(struct heap *heap)
{
    mutex_lock(&heap->arena->sets.lock);
    heap->awaits.tree->waits -= heap->awaits.waits;
    for (struct awaited *awaited = next_of(heap, NULL); awaited; awaited = next_of(heap, awaited))
        if (awaited->mark)
            tree_remove(&heap->awaits.tree->marks, &awaited->node);
    mutex_unlock(&heap->arena->sets.lock);
    heap->awaits.tree = NULL;
}

void awaited_release_locked(struct heap *heap)
{
    if (heap->awaits.tree || !heap->awaits.kept)
        return;
    for (struct awaited *awaited = next_of(heap, NULL); awaited; awaited = next_of(heap, awaited)) {
        mark_release(awaited->mark);
        awaited->mark = NULL;
    }
    heap->awaits.kept = false;
}

/* Notes all marks of the heap, of its own batches up to `oldest`. False if one cannot be
 * awaited. */
static bool note_all_locked(struct heap *heap, uint64_t oldest)
{
    return note_uses_locked(heap) &&
           (oldest == UINT64_MAX || note(heap, &heap->awaits.own, batch_mark_locked(heap, oldest)));
}

static bool awaits_any(struct heap *heap)
{
    struct awaited *awaited = next_of(heap, NULL);
    while (awaited && !awaited->mark)
        awaited = next_of(heap, awaited);
    return awaited;
}

/* An anchor that goes while the heap is looked at finds the heap in the set, or is seen by the
 * second look. */
void heap_await_locked(struct heap *heap)
{
    uint64_t oldest, again;
    bool anchored;
    awaited_release_locked(heap);
    if (store_is_held(heap->store) || !is_busy_locked(heap, &oldest, &anchored))
        return;
    if (note_all_locked(heap, oldest) && (anchored || awaits_any(heap)))
        list_all_locked(heap, HEAP_AWAITS | (anchored ? HEAP_ANCHORED : 0));
    awaited_release_locked(heap);
    if (heap->sets.known & HEAP_ANCHORED &&
        (!is_busy_locked(heap, &again, &anchored) || again < oldest))
        heap_known_end_locked(heap, HEAP_AWAITS | HEAP_ANCHORED);
}

/* Whether the next search comes to the heap. */
static bool is_over_locked(struct heap *heap)
{
    bool over = heap->sets.known & HEAP_ANCHORED && atomic_load(&heap->arena->sets.unanchored);
    for (struct awaited *awaited = next_of(heap, NULL); awaited && !over;
         awaited = next_of(heap, awaited))
        over = awaited->mark && mark_query(awaited->mark) != TARN_ERROR_NOT_READY;
    return over;
}

const char *awaited_contradiction_locked(struct heap *heap)
{
    uint64_t oldest;
    bool anchored;
    if (!heap->awaits.tree != !(heap->sets.known & HEAP_AWAITS))
        return "the heap awaits work, and that is not known of it; or the reverse";
    if (!heap->awaits.tree || store_is_held(heap->store) ||
        is_busy_locked(heap, &oldest, &anchored))
        return NULL;
    return is_over_locked(heap) ? NULL : "the heap has something idle, and awaits work";
}

/* Searches ------------------------------------------------------------------------------------- */

static void give_again(struct heap *heap)
{
    mutex_lock(&heap->lock);
    if (heap->sets.known & HEAP_AWAITS)
        heap_known_end_locked(heap, HEAP_AWAITS | HEAP_ANCHORED);
    awaited_release_locked(heap);
    mutex_unlock(&heap->lock);
}

static void look_in(struct arena *arena, const struct awaited_tree *tree, size_t most)
{
    struct place place = {NULL, 0};
    struct heap *heap = NULL;
    struct mark *mark;
    while (most > 0 && (mark = next_stream(arena, tree, &place, &heap))) {
        if (mark_query(mark) == TARN_ERROR_NOT_READY) {
            move_behind(&place, mark);
            most--;
        } else {
            give_again(heap);
        }
        mark_release(mark);
    }
}

void awaited_unanchored(struct arena *arena)
{
    atomic_store(&arena->sets.unanchored, true);
}

/* The tree of a store's own heaps, unless they serve every store, or give each other nothing. */
static const struct awaited_tree *own_tree(struct store *wanting)
{
    return store_gives_itself_nothing(wanting) ? NULL : &wanting->sets.awaited;
}

void awaited_look(struct store *wanting, size_t most)
{
    struct arena *arena = wanting->arena;
    const struct awaited_tree *own = own_tree(wanting);
    if (atomic_exchange(&arena->sets.unanchored, false))
        for (struct heap *heap = heap_next_anchored(arena, NULL); heap;
             heap = heap_next_anchored(arena, heap))
            give_again(heap);
    look_in(arena, &arena->sets.awaited, most);
    if (own)
        look_in(arena, own, most);
}

static void add_of(struct wait_any *any, struct arena *arena, const struct awaited_tree *tree)
{
    struct place place = {NULL, 0};
    struct heap *heap = NULL;
    struct mark *mark;
    while (any->count < MARKS_MOST && (mark = next_stream(arena, tree, &place, &heap))) {
        move_behind(&place, mark);
        wait_any_add_mark(any, mark);
        mark_release(mark);
    }
}

void awaited_add(struct wait_any *any, struct store *wanting)
{
    const struct awaited_tree *own = own_tree(wanting);
    add_of(any, wanting->arena, &wanting->arena->sets.awaited);
    if (own)
        add_of(any, wanting->arena, own);
}

size_t awaited_waits(struct store *wanting)
{
    const struct awaited_tree *own = own_tree(wanting);
    mutex_lock(&wanting->arena->sets.lock);
    size_t waits = wanting->arena->sets.awaited.waits + (own ? own->waits : 0);
    mutex_unlock(&wanting->arena->sets.lock);
    return waits;
}
