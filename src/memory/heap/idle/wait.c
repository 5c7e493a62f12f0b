/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns uses, and each heap's queues of pending uses. There is one queue per stream that uses
 * blocks, so the cost of a check does not depend on the number of waiting blocks. The objects for
 * waiting are created when a block is used, so a free cannot fail for lack of host memory. A mark
 * that cannot be recorded at the free is recorded later. A use leaves its queue only when its own
 * mark has ended: the order of a queue decides which use is asked about first, never which block is
 * free. Runs under the heap's lock, except for additions to a list that belongs to no block yet. */
#include "memory/heap/idle/wait.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/clock.h"
#include "memory/heap/cache.h"
#include "memory/heap/idle/capture_order.h"
#include "memory/heap/parked.h"
#include "memory/heap/traced.h"
#include "memory/settings/hooks.h"

static struct object_pool all_uses = OBJECT_POOL(struct use);
static struct object_pool all_queues = OBJECT_POOL(struct use_queue);

/* Queues --------------------------------------------------------------------------------------- */

#define QUEUE_OF(node) TREE_ENTRY(node, struct use_queue, by_stream)

/* The order of queues, and of uses: by stream, incarnation, and whether they are events. */
static int stream_order(const struct stream *a, unsigned a_incarnation, const struct stream *b,
                        unsigned b_incarnation)
{
    if (a != b)
        return (uintptr_t)a < (uintptr_t)b ? -1 : 1;
    return (a_incarnation > b_incarnation) - (a_incarnation < b_incarnation);
}

static int queue_order(const struct use_queue *queue, const struct stream *stream,
                       unsigned incarnation, bool events)
{
    int order = stream_order(queue->stream, queue->incarnation, stream, incarnation);
    return order ? order : queue->events - events;
}

static bool queue_is_before(const struct tree_node *a, const struct tree_node *b)
{
    const struct use_queue *other = QUEUE_OF(b);
    return queue_order(QUEUE_OF(a), other->stream, other->incarnation, other->events) < 0;
}

/* A queue, created if necessary; NULL with an error text if the host is out of
 * memory. */
static struct use_queue *queue_of(struct waiting *waiting, struct stream *stream,
                                  unsigned incarnation, bool events)
{
    struct tree_node *node = waiting->by_stream.root;
    int order;
    while (node && (order = queue_order(QUEUE_OF(node), stream, incarnation, events)) != 0)
        node = node->sides[order < 0];
    if (node)
        return QUEUE_OF(node);
    struct use_queue *queue = object_alloc(&all_queues);
    if (!queue) {
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                     "no host memory for the uses of blocks by another stream");
        return NULL;
    }
    queue->stream = stream;
    queue->incarnation = incarnation;
    queue->events = events;
    queue->waiting = waiting;
    waiting->unused++;
    queue->next = waiting->queues;
    waiting->queues = queue;
    tree_insert_by(&waiting->by_stream, &queue->by_stream, queue_is_before);
    return queue;
}

static void queues_sweep_locked(struct waiting *waiting)
{
    for (struct use_queue **place = &waiting->queues; *place;) {
        struct use_queue *queue = *place;
        if (queue->users) {
            place = &queue->next;
            continue;
        }
        *place = queue->next;
        tree_remove(&waiting->by_stream, &queue->by_stream);
        mark_release(queue->awaited.mark);
        object_free(&all_queues, queue);
    }
    waiting->unused = 0;
}

static void list_insert(struct use_list *list, struct use *behind, struct use *use)
{
    use->earlier = behind;
    use->later = behind ? behind->later : list->first;
    if (use->later)
        use->later->earlier = use;
    else
        list->last = use;
    if (behind)
        behind->later = use;
    else
        list->first = use;
}

static void list_remove(struct use_list *list, struct use *use)
{
    if (use->earlier)
        use->earlier->later = use->later;
    else
        list->first = use->later;
    if (use->later)
        use->later->earlier = use->earlier;
    else
        list->last = use->earlier;
    use->earlier = use->later = NULL;
}

static uint64_t place_of(const struct use *use)
{
    return use->mark ? mark_place(use->mark).number : 0;
}

/* Inserts a use after those whose marks were recorded earlier. That is at the end of the queue,
 * except for callers' events, which may have been recorded in another order, and for uses that have
 * finished. */
static void queue_insert(struct use *use)
{
    struct use_list *list = use->marked ? &use->queue->marked : &use->queue->unmarked;
    struct use *behind = use->marked && !use->mark ? NULL : list->last;
    while (use->marked && behind && place_of(behind) > place_of(use))
        behind = behind->earlier;
    list_insert(list, behind, use);
}

static void use_ends_locked(struct waiting *waiting, struct use *use)
{
    list_remove(use->marked ? &use->queue->marked : &use->queue->unmarked, use);
    use->first->pending--;
    use->first = NULL;
    waiting->uses--;
}

/* Uses ----------------------------------------------------------------------------------------- */

#define USE_OF(node) TREE_ENTRY(node, struct use, by_stream)

static bool use_is_before(const struct tree_node *a, const struct tree_node *b)
{
    return stream_order(USE_OF(a)->stream, USE_OF(a)->incarnation, USE_OF(b)->stream,
                        USE_OF(b)->incarnation) < 0;
}

/* Adds a use to the front of a list, with a queue unless `waiting` is NULL. */
static struct use *use_create(struct waiting *waiting, struct use **uses, struct stream *stream,
                              unsigned incarnation, bool event)
{
    struct use_queue *queue = waiting ? queue_of(waiting, stream, incarnation, event) : NULL;
    struct use *use = queue || !waiting ? object_alloc(&all_uses) : NULL;
    if (!use) {
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                     "no host memory for the use of a block by another stream");
        return NULL;
    }
    use->stream = event ? NULL : stream;
    use->incarnation = incarnation;
    use->queue = queue;
    if (queue)
        queue->waiting->unused -= !queue->users++;
    use->next = *uses;
    use->streams.root = *uses ? (*uses)->streams.root : NULL;
    *uses = use;
    if (!event)
        tree_insert_by(&use->streams, &use->by_stream, use_is_before);
    return use;
}

/* Adds a use that belongs to one capture; 0: to none. */
static tarn_status use_add(struct waiting *waiting, struct use **uses, struct stream *stream,
                           unsigned incarnation, uint64_t capture)
{
    struct tree_node *node = *uses ? (*uses)->streams.root : NULL;
    int order;
    while (node && (order = stream_order(USE_OF(node)->stream, USE_OF(node)->incarnation, stream,
                                         incarnation)) != 0)
        node = node->sides[order < 0];
    if (node) {
        USE_OF(node)->capture = USE_OF(node)->capture == capture ? capture : 0;
        return TARN_OK;
    }
    struct use *use = use_create(waiting, uses, stream, incarnation, false);
    if (!use)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    use->capture = capture;
    return TARN_OK;
}

tarn_status use_add_stream(struct waiting *waiting, struct use **uses, struct stream *stream)
{
    return use_add(waiting, uses, stream,
                   atomic_load_explicit(&stream->incarnation, memory_order_relaxed),
                   capture_order_of(stream));
}

tarn_status use_add_own(struct heap *heap, struct use **uses)
{
    return use_create(&heap->waiting, uses, heap->stream, heap->incarnation, false)
               ? TARN_OK
               : TARN_ERROR_OUT_OF_HOST_MEMORY;
}

tarn_status use_add_mark(struct waiting *waiting, struct use **uses, struct mark *mark)
{
    struct mark_place place = mark_place(mark);
    struct use *use = use_create(waiting, uses, place.stream, place.incarnation, true);
    if (!use)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    use->mark = mark_keep(mark);
    use->marked = true;
    return TARN_OK;
}

static struct use *use_destroy(struct use *use)
{
    struct use *next = use->next;
    if (use->queue)
        use->queue->waiting->unused += !--use->queue->users;
    mark_release(use->mark);
    point_destroy(use->point);
    object_free(&all_uses, use);
    return next;
}

/* A note in a list is nobody's use: it is in no queue and has no mark. */
void use_put_referred(struct use **uses, struct use *note)
{
    note->next = *uses;
    note->streams.root = *uses ? (*uses)->streams.root : NULL;
    *uses = note;
}

tarn_status use_add_referred(struct use **uses, struct referred *referred)
{
    struct use *note = object_alloc(&all_uses);
    if (!note)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "no host memory to note that a graph refers to a block");
    note->referred = referred;
    use_put_referred(uses, note);
    return TARN_OK;
}

struct referred *use_referred(const struct use *uses)
{
    while (uses && !uses->referred)
        uses = uses->next;
    return uses ? uses->referred : NULL;
}

struct use *use_take_referred(struct use **uses)
{
    struct use **place = uses;
    while (*place && !(*place)->referred)
        place = &(*place)->next;
    struct use *note = *place;
    if (note && note == *uses && note->next)
        note->next->streams.root = note->streams.root;
    if (note)
        *place = note->next;
    return note;
}

void use_end_referred(struct use *note)
{
    (void)use_destroy(note);
}

/* Records a mark after the work queued on the using stream, if the use has none yet. */
static tarn_status use_mark(struct use *use)
{
    if (use->marked)
        return TARN_OK;
    tarn_status status = mark_of_stream(use->stream, use->incarnation, &use->mark);
    use->marked = status == TARN_OK;
    return status;
}

/* Work on a lost device counts as ended: it will never touch memory again. */
static bool is_over(tarn_status status)
{
    return status == TARN_OK || status == TARN_ERROR_DEVICE_LOST;
}

/* True if a use that has a mark has ended. A mark that a capture has taken can be recorded again
 * only on its own stream. If that stream was retired since, the later mark of its retirement
 * replaces it. */
static bool use_ended(struct use *use)
{
    tarn_status status = use->mark ? mark_query(use->mark) : TARN_OK;
    struct mark *last = NULL;
    if (status != TARN_ERROR_CAPTURE)
        return is_over(status);
    struct mark_place place = mark_place(use->mark);
    if (atomic_load(&place.stream->incarnation) == place.incarnation ||
        mark_of_stream(place.stream, place.incarnation, &last) || last == use->mark) {
        mark_release(last);
        return false;
    }
    mark_release(use->mark);
    use->mark = last;
    return !last || is_over(mark_query(last));
}

void wait_begin_locked(struct heap *heap, struct span *span, unsigned slot, struct use *uses,
                       size_t size)
{
    heap->waiting.ever++;
    uses->span = span;
    uses->slot = slot;
    uses->pending = 0;
    for (struct use *use = uses; use; use = use->next) {
        if (use_mark(use) && use->capture)
            use->point = point_take(use->stream, use->capture);
        use->first = uses;
        use->number = heap->waiting.ever;
        queue_insert(use);
        uses->pending++;
    }
    if (heap->sets.known)
        heap_changed_locked(heap);
    heap->waiting.blocks++;
    heap->waiting.uses += uses->pending;
    heap->waiting.bytes += size;
}

bool wait_is_first(const struct use *use)
{
    const struct use *first = use->first;
    while (!first->first)
        first = first->next;
    return first == use;
}

size_t wait_size(const struct use *use)
{
    const struct span *span = use->first->span;
    return span->state == SPAN_SLAB ? span->slab->slot_size : span->size;
}

/* Returns the memory of a block to the heap. No use of it is pending. */
static void block_end_locked(struct heap *heap, struct use *uses)
{
    struct span *span = uses->span;
    struct slab *slab = span->state == SPAN_SLAB ? span->slab : NULL;
    size_t size = slab ? slab->slot_size : span->size;
    unsigned slot = uses->slot;
    trace_block(TRACE_free_completed, heap, slab ? slab_address(slab, slot) : span->start,
                slab ? slab_requested(slab, slot) : span->requested,
                slab ? slab_tag(slab, slot) : span->tag);
    if (uses->watch)
        hooks.debug_gone_locked(uses->watch);
    while (uses)
        uses = use_destroy(uses);
    if (heap->sets.known)
        heap_changed_locked(heap);
    heap->waiting.blocks--;
    if (slab) {
        atomic_load_explicit(&slab->uses, memory_order_relaxed)[slot] = NULL;
        slab_set_state_locked(slab, slot, NOTE_TAKEN);
        cache_give_locked(slab, slot);
    } else {
        span->uses = NULL;
        span_leave_map_locked(heap, span);
        span_give_locked(heap, span);
    }
    heap->waiting.bytes -= size;
    counters_completed(heap->store->counters, size);
}

/* The state of one check of a heap's queues. */
struct pass {
    struct heap *heap;
    size_t ended;      /* blocks that have become free, or that debug mode must check now */
    bool asked, knows; /* whether the order of captured work was asked for; whether it is known */
};

/* Whether a use belongs to a capture that the heap's stream takes part in now, and that holds the
 * heap's memory. Then only the graph shows whether the use has ended. */
static bool is_captured(struct pass *pass, const struct use *use)
{
    struct heap *heap = pass->heap;
    if (!use->point)
        return false;
    if (!pass->asked)
        pass->knows = atomic_load(&heap->store->holds) &&
                      capture_order_learn(&heap->waiting.order, heap->stream);
    pass->asked = true;
    return pass->knows && capture_order_is_of(heap->waiting.order, use->point);
}

/* Whether the next work of the heap's stream in its capture comes after all pending uses of a
 * block. */
static bool is_ordered(struct pass *pass, const struct use *uses)
{
    for (const struct use *use = uses; use; use = use->next)
        if (use->first && !(is_captured(pass, use) &&
                            capture_order_includes(pass->heap->waiting.order, use->point)))
            return false;
    return true;
}

/* All uses of a block have ended: frees it, unless debug mode must check it first. */
static void work_ends_locked(struct pass *pass, struct use *uses)
{
    struct heap *heap = pass->heap;
    pass->ended++;
    for (struct use *use = uses; use; use = use->next)
        if (use->first)
            use_ends_locked(&heap->waiting, use);
    if (!uses->watch) {
        block_end_locked(heap, uses);
        return;
    }
    hooks.debug_ended_locked(uses->watch);
    uses->next_watched = heap->waiting.watched;
    heap->waiting.watched = uses;
}

static void look_at_watched_locked(struct pass *pass)
{
    for (struct use **place = &pass->heap->waiting.watched; *place;) {
        struct use *uses = *place;
        if (!hooks.debug_is_over(uses->watch)) {
            place = &uses->next_watched;
            continue;
        }
        *place = uses->next_watched;
        block_end_locked(pass->heap, uses);
        pass->ended++;
    }
}

/* Records one mark for all uses of a stream that could not be marked before. It comes after all of
 * them. */
static void queue_mark(struct use_queue *queue)
{
    struct mark *mark = NULL;
    struct use *use = queue->unmarked.first;
    if (!use)
        return;
    tarn_status status = mark_of_stream(use->stream, use->incarnation, &mark);
    if (!is_over(status))
        return;
    while ((use = queue->unmarked.first)) {
        list_remove(&queue->unmarked, use);
        use->mark = mark_keep(mark);
        use->marked = true;
        queue_insert(use);
    }
    mark_release(mark);
}

/* Ends blocks with uses that cannot be marked, if the graph orders those uses before the heap's
 * stream. */
static void look_at_captured_locked(struct pass *pass, struct use_queue *queue)
{
    for (struct use *use = queue->unmarked.first, *next; use; use = next) {
        next = use->later;
        if (use->point && is_ordered(pass, use->first))
            work_ends_locked(pass, use->first);
    }
}

static void look_at_queue_locked(struct pass *pass, struct use_queue *queue)
{
    queue_mark(queue);
    for (struct use *use; (use = queue->marked.first) && use_ended(use);) {
        struct use *uses = use->first;
        use_ends_locked(&pass->heap->waiting, use);
        if (!uses->pending)
            work_ends_locked(pass, uses);
    }
}

/* The queues, if blocks wait. Otherwise NULL: no queue has pending uses. */
static struct use_queue *queues_of(const struct waiting *waiting)
{
    return waiting->blocks ? waiting->queues : NULL;
}

size_t wait_collect_locked(struct heap *heap)
{
    struct pass pass = {.heap = heap};
    parked_flush_locked(heap);
    awaited_release_locked(heap);
    for (struct use_queue *queue = queues_of(&heap->waiting); queue; queue = queue->next)
        look_at_queue_locked(&pass, queue);
    for (struct use_queue *queue = queues_of(&heap->waiting); queue; queue = queue->next)
        look_at_captured_locked(&pass, queue);
    look_at_watched_locked(&pass);
    if (heap->waiting.unused)
        queues_sweep_locked(&heap->waiting);
    if (!pass.asked)
        capture_order_destroy(&heap->waiting.order);
    return pass.ended;
}

void heap_collect(struct heap *heap)
{
    mutex_lock(&heap->lock);
    (void)wait_collect_locked(heap);
    caches_reclaim_locked(heap);
    mutex_unlock(&heap->lock);
}

/* Whether a block waits for a stream. If so, `mark` is the mark of the block that has waited
 * longest, or NULL if some work has ended since the last check. */
static bool use_oldest_locked(struct heap *heap, struct mark **mark)
{
    const struct use *oldest = NULL;
    bool ended = false;
    for (struct use_queue *queue = queues_of(&heap->waiting); queue; queue = queue->next) {
        const struct use *use = queue->marked.first;
        tarn_status status = use && use->mark ? mark_query(use->mark) : TARN_OK;
        ended = ended || (use && is_over(status));
        if (status == TARN_ERROR_NOT_READY && (!oldest || use->number < oldest->number) &&
            mark_can_wait(use->mark))
            oldest = use;
    }
    if (oldest)
        *mark = mark_keep(oldest->mark);
    return oldest || ended;
}

/* The oldest batch whose end would make a piece idle; UINT64_MAX: none. */
static uint64_t batch_oldest_locked(struct heap *heap)
{
    uint64_t oldest = UINT64_MAX;
    for (int zone = 0; zone < ZONES; zone++) {
        for (struct tree_node *node = tree_last(&heap->zones.of[zone].free); node;
             node = tree_previous(node)) {
            const struct span *span = TREE_ENTRY(node, struct span, by_size);
            if (heap->store->kind.pieces && span->size < heap->arena->granule)
                break;
            if (!span_idle_locked(heap, span) && span->batch < oldest &&
                span_has_piece_locked(heap, span))
                oldest = span->batch;
        }
    }
    return oldest;
}

bool wait_oldest_locked(struct heap *heap, struct mark **mark)
{
    *mark = NULL;
    if (wait_collect_locked(heap))
        return true;
    if (use_oldest_locked(heap, mark))
        return true;

    uint64_t batch = batch_oldest_locked(heap);
    if (batch == UINT64_MAX)
        return false;
    heap_learn_foreign_locked(heap);
    if (batch <= heap->batches.idle)
        return true;
    struct mark *batch_mark = batch_mark_locked(heap, batch);
    if (batch_mark && mark_can_wait(batch_mark))
        *mark = mark_keep(batch_mark);
    return *mark != NULL;
}

/* Rest (rest.h) -------------------------------------------------------------------------------- */

uint64_t heap_rest_locked(struct heap *heap)
{
    uint64_t rested = heap->rest.batch;
    (void)wait_collect_locked(heap);
    caches_reclaim_locked(heap);
    heap->rest.batch = heap->batches.open++;
    if (heap->retired)
        batches_end_locked(heap); /* its last mark covers the next batch too */
    return rested;
}

void heap_rest_grown_locked(struct heap *heap, uintptr_t start, size_t size)
{
    struct rest *rest = &heap->rest;
    bool first = !rest->grown_end;
    rest->grown_start = first || start < rest->grown_start ? start : rest->grown_start;
    rest->grown_end = first || start + size > rest->grown_end ? start + size : rest->grown_end;
}

bool heap_rest_wants_mark_locked(struct heap *heap, uint64_t rested)
{
    const struct batches *batches = &heap->batches;
    uint64_t oldest = rested && !heap->retired ? batch_oldest_locked(heap) : UINT64_MAX;
    bool covered = batches->count && batches->closed[batches->count - 1].number >= oldest;
    heap->rest.wants_mark = oldest <= rested && !covered;
    for (const struct use_queue *queue = queues_of(&heap->waiting); queue; queue = queue->next)
        heap->rest.wants_mark = heap->rest.wants_mark || queue->unmarked.first;
    return heap->rest.wants_mark;
}

bool heap_rest_mark(struct heap *heap)
{
    mutex_lock(&heap->lock);
    bool others = heap->rest.wants_mark && stream_is_foreign(heap->stream);
    if (heap->rest.wants_mark && !others) {
        heap->rest.wants_mark = false;
        (void)wait_collect_locked(heap);
        heap_learn_locked(heap, true);
    }
    mutex_unlock(&heap->lock);
    return !others;
}

/* The result of a wait for work on memory of a device. Another device that is lost does no work on
 * it any more. */
static tarn_status waited_for(const struct arena *arena, tarn_status status)
{
    bool others = status == TARN_ERROR_DEVICE_LOST && !atomic_load(&arena->device->lost);
    return others ? TARN_OK : status;
}

/* Waits for the oldest work that holds memory of a heap back. False if there is none. The caller
 * holds no lock. */
static bool heap_wait(struct heap *heap, tarn_status *status)
{
    struct mark *mark = NULL;
    mutex_lock(&heap->lock);
    bool helps = wait_oldest_locked(heap, &mark);
    mutex_unlock(&heap->lock);
    if (!mark)
        return helps;
    *status = waited_for(heap->arena, mark_wait(mark));
    if (*status == TARN_ERROR_CAPTURE && !mark_can_wait(mark))
        *status = TARN_OK; /* a capture has begun, during which tarn does not wait for this mark */
    mark_release(mark);
    mutex_lock(&heap->lock);
    heap_learn_locked(heap, false);
    mutex_unlock(&heap->lock);
    return true;
}

void wait_any_add_mark(struct wait_any *any, struct mark *mark)
{
    if (mark_is_of_device(mark)) {
        if (!any->whole && mark_can_wait(mark))
            any->whole = mark_keep(mark);
    } else if (any->count < MARKS_MOST) {
        any->marks[any->count++] = mark_keep(mark);
    }
}

static void uses_add_locked(struct wait_any *any, struct heap *heap)
{
    for (struct use_queue *queue = queues_of(&heap->waiting); queue && !any->ended;
         queue = queue->next) {
        const struct use *use = queue->marked.first;
        tarn_status status = use && use->mark ? mark_query(use->mark) : TARN_OK;
        if (status == TARN_ERROR_NOT_READY)
            wait_any_add_mark(any, use->mark);
        any->ended = use && is_over(status);
    }
}

/* Adds the mark of the oldest batch that would make a piece idle. */
static void batch_add_locked(struct wait_any *any, struct heap *heap)
{
    uint64_t batch = batch_oldest_locked(heap);
    if (batch == UINT64_MAX)
        return;
    heap_learn_foreign_locked(heap);
    any->ended = batch <= heap->batches.idle;
    struct mark *mark = any->ended ? NULL : batch_mark_locked(heap, batch);
    if (mark)
        wait_any_add_mark(any, mark);
}

void wait_any_add(struct wait_any *any, struct heap *heap)
{
    if (any->ended)
        return;
    mutex_lock(&heap->lock);
    any->ended = wait_collect_locked(heap);
    if (!any->ended)
        uses_add_locked(any, heap);
    if (!any->ended)
        batch_add_locked(any, heap);
    mutex_unlock(&heap->lock);
}

bool wait_any(struct wait_any *any, const struct arena *arena, uint64_t until, tarn_status *status)
{
    bool helps = any->ended || any->count || any->whole;
    if (!any->ended && any->count)
        *status = waited_for(arena, marks_wait_any(any->marks, any->count, until));
    else if (!any->ended && any->whole)
        *status = until == UNTIL_ENDED ? mark_wait(any->whole) : TARN_ERROR_NOT_READY;
    if (*status == TARN_ERROR_CAPTURE && !any->count && any->whole && !mark_can_wait(any->whole))
        *status = TARN_OK; /* a capture has begun, during which tarn does not wait for this mark */
    while (any->count)
        mark_release(any->marks[--any->count]);
    mark_release(any->whole);
    *any = (struct wait_any){0};
    return helps;
}

static struct heap *next_heap(struct arena *arena, struct store *store, struct heap *heap)
{
    return store ? heap_next_of(store, heap) : heap_next(arena, heap);
}

size_t heap_waits_locked(const struct heap *heap)
{
    return 4 * (heap->waiting.uses + HEAP_BATCHES + 1);
}

static size_t waits_of(struct heap *heap)
{
    mutex_lock(&heap->lock);
    size_t waits = heap_waits_locked(heap);
    mutex_unlock(&heap->lock);
    return waits;
}

size_t waits_ahead(struct arena *arena, struct store *store)
{
    size_t waits = 0;
    for (struct heap *heap = next_heap(arena, store, NULL); heap;
         heap = next_heap(arena, store, heap))
        waits += waits_of(heap);
    return waits;
}

size_t waits_ahead_serving(struct store *wanting)
{
    size_t waits = awaited_waits(wanting);
    for (struct heap *heap = heap_next_giving(wanting, NULL); heap;
         heap = heap_next_giving(wanting, heap))
        waits += waits_of(heap);
    return waits;
}

tarn_status heaps_settle(struct arena *arena, struct store *store)
{
    tarn_status status = TARN_OK;
    for (struct heap *heap = next_heap(arena, store, NULL); heap;
         heap = next_heap(arena, store, heap))
        for (size_t waits = waits_of(heap); waits > 0 && !status && heap_wait(heap, &status);
             waits--)
            ;
    return status;
}

/* Adds the uses of a live block to a sum; of a waiting block those that are pending, including
 * callers' events. */
static tarn_status sum_add(struct use **sum, const struct use *uses, bool waits)
{
    tarn_status status = TARN_OK;
    for (; uses && !status; uses = uses->next) {
        if (waits && !uses->first)
            continue; /* it has ended */
        if (uses->stream)
            status = use_add(NULL, sum, uses->stream, uses->incarnation, 0);
        else if (uses->mark)
            status = use_add_mark(NULL, sum, uses->mark);
    }
    return status;
}

static tarn_status sum_add_span(struct use **sum, const struct span *span)
{
    tarn_status status = TARN_OK;
    if (span->state == SPAN_BLOCK || span->state == SPAN_PENDING)
        return sum_add(sum, span->uses, span->state == SPAN_PENDING);
    struct use **uses = span->state == SPAN_SLAB
                            ? atomic_load_explicit(&span->slab->uses, memory_order_relaxed)
                            : NULL;
    for (unsigned slot = 0; uses && slot < span->slab->slots && !status; slot++)
        status = sum_add(sum, uses[slot], slab_state(span->slab, slot) == NOTE_PENDING);
    return status;
}

tarn_status uses_sum_locked(struct heap *heap, struct use **sum)
{
    tarn_status status = TARN_OK;
    for (int zone = 0; zone < ZONES; zone++)
        for (const struct run *run = heap->zones.of[zone].runs; run; run = run->next)
            for (const struct span *span = run->first; span && !status; span = span->next)
                status = sum_add_span(sum, span);
    return status;
}

tarn_status uses_wait(const struct arena *arena, struct use *sum)
{
    tarn_status status = TARN_OK;
    for (; sum; sum = use_destroy(sum)) {
        if (!status)
            status = waited_for(arena, use_mark(sum));
        if (!status && sum->mark)
            status = waited_for(arena, mark_wait(sum->mark));
    }
    return status;
}
