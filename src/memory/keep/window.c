/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The memory of kept pools: each segment is one piece, exported, handed to the owner, and mapped in
 * the pool's own addresses. Owns the list of kept pools. A segment is the owner's before the pool
 * uses it, and no longer the owner's before its bytes are given back. So a kill at any moment
 * leaves either a whole segment with the owner, or none. lock_order.h says which locks are held
 * over driver calls. */
#include "base/file.h"
#include "base/machine.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "device/capture.h"
#include "memory/keep/keep.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Where pools are to lie: the same in every process, because nothing else is usually there. In each
 * place, a pool has the addresses of its slot. Linux has programs from two thirds of 2^47 on
 * (ELF_ET_DYN_BASE), and libraries and stacks from the end of 2^47 downwards. The shadow memory of
 * the address sanitizer ends 2 GiB behind 2^44 (compiler-rt/lib/asan/asan_mapping.h). CUDA has
 * addresses from 8 to 24 GiB and at 1 TiB (the maps in issue 8 of CRAC-early-development). The last
 * place is for processes that have no other: those under the thread sanitizer, which leaves them
 * the first 512 GiB (compiler-rt/lib/tsan/rtl/tsan_platform.h), and those with addresses of 39
 * bits. There all slots are tried, and near ones late: other pools may be about to be there. */
#define GIB UINT64_C(0x40000000)
#define ADDRESSES (UINT64_C(1) << 47) /* of a process */
static const struct place {
    uint64_t start, stride;
    uint32_t slots;
} places[] = {
    {UINT64_C(0x200000000000), 1024 * GIB, 16},
    {UINT64_C(0x300000000000), 1024 * GIB, 16},
    {UINT64_C(0x400000000000), 1024 * GIB, 16},
    {64 * GIB, 64 * GIB, 7},
};
enum { PLACES = sizeof places / sizeof *places, TRIES = PLACES + 6 };

/* Over the calls that map a segment, or give a new peer access to all: each segment is either
 * mapped with the peer, or among those that it is given. */
static mutex keeps_lock = MUTEX_INITIALIZER(LOCK_KEEPS);
static struct keep *keeps; /* the same lock */

/* Addresses ------------------------------------------------------------------------------------ */

/* Reserves at a wished address, or anywhere. */
static tarn_status reserve(const struct keep *keep, uint64_t wish, uintptr_t *base)
{
    size_t granule = keep->device->properties.granule;
    *base = (uintptr_t)wish;
    return device_note(keep->device,
                       driver->reserve(keep->device->number, keep->window, granule, base));
}

/* What is tried as number `i`, for a pool with this slot. */
static uint64_t wish_of(unsigned i, uint32_t slot)
{
    unsigned more = i < PLACES ? 0 : i - PLACES + 1;
    const struct place *place = &places[i - more];
    return place->start + (slot + 3 * more) % place->slots * place->stride;
}

/* Reserves `window` bytes: at `wish`, at one of the places, or anywhere. */
static tarn_status reserve_somewhere(struct keep *keep, uint64_t wish, uint32_t slot)
{
    unsigned next = 0;
    uint64_t wished = wish ? wish : wish_of(next++, slot);
    for (;;) {
        uintptr_t base;
        tarn_status status = reserve(keep, wished, &base);
        if (status)
            return status;
        if (base == wished || next == TRIES) {
            keep->base = base;
            return TARN_OK;
        }
        status =
            device_note(keep->device, driver->unreserve(keep->device->number, base, keep->window));
        if (status)
            return status;
        wished = wish_of(next++, slot);
    }
}

/* Halves the window. False if that leaves fewer bytes than a pool can use. */
static bool halve(struct keep *keep, size_t least)
{
    size_t granule = keep->device->properties.granule, half = keep->window / 2 / granule * granule;
    if (half < least)
        return false;
    keep->window = half;
    return true;
}

tarn_status window_wish(struct keep *keep)
{
    uint64_t granule = keep->device->properties.granule;
    keep->wish = atomic_load_explicit(&keep->layout->base, memory_order_acquire);
    if (!keep->wish)
        return TARN_OK;
    keep->window = keep->layout->size;
    if (keep->window && keep->window < ADDRESSES && keep->window % granule == 0 &&
        keep->wish % granule == 0 && keep->wish <= ADDRESSES - keep->window)
        return TARN_OK;
    return failed(TARN_ERROR_SYSTEM,
                  "pool %s was at %#" PRIx64 " with %zu bytes, it says: its layout is broken; tarn "
                  "keep --drop %s gives the memory up",
                  keep->name, keep->wish, keep->window, keep->name);
}

tarn_status window_reserve(struct keep *keep, uint64_t wish, uint32_t slot, size_t least)
{
    int bits = machine_address_bits();
    tarn_status status;
    struct error_before before;
    error_attempt_begin(&before);
    while (!wish && bits > 2 && keep->window >> (bits - 2) && halve(keep, least))
        ;
    do
        status = reserve_somewhere(keep, wish, slot);
    while (status == TARN_ERROR_OUT_OF_MEMORY && !wish && halve(keep, least));
    if (status == TARN_ERROR_OUT_OF_MEMORY)
        status = failed_within(status,
                               "pool %s needs %zu bytes of addresses in one piece%s: the device's "
                               "driver limits them, or ulimit -v",
                               keep->name, keep->window, wish ? ", as the process before had" : "");
    error_attempt_end(&before, status);
    return status;
}

bool window_unreserve(struct keep *keep)
{
    struct error_before before;
    if (!keep->base)
        return true;
    if (keep->piece_count > 0)
        return false;
    error_attempt_begin(&before);
    tarn_status status = device_note(
        keep->device, driver->unreserve(keep->device->number, keep->base, keep->window));
    error_attempt_end(&before, TARN_OK);
    return status == TARN_OK;
}

/* Segments ------------------------------------------------------------------------------------- */

/* Enters a segment without a handle: at `offset`, or with UINT64_MAX at the first place that is
 * long enough. NULL if there is none. */
static struct keep_piece *enter_locked(struct keep *keep, uint64_t offset, uint64_t size)
{
    unsigned at = 0;
    uint64_t end = 0; /* of the segment before */
    if (keep->piece_count == KEEP_SEGMENTS_MOST || size > keep->window)
        return NULL;
    for (; at < keep->piece_count; at++) {
        const struct keep_piece *next = &keep->pieces[at];
        if (offset == UINT64_MAX ? next->offset - end >= size : next->offset > offset)
            break;
        end = next->offset + next->size;
    }
    uint64_t start = offset == UINT64_MAX ? end : offset,
             limit = at < keep->piece_count ? keep->pieces[at].offset : keep->window;
    if (start < end || start > limit || size > limit - start)
        return NULL;
    memmove(&keep->pieces[at + 1], &keep->pieces[at],
            (keep->piece_count - at) * sizeof keep->pieces[0]);
    keep->piece_count++;
    keep->pieces[at] = (struct keep_piece){.offset = start, .size = size};
    return &keep->pieces[at];
}

static struct keep_piece *find_locked(struct keep *keep, uint64_t offset)
{
    unsigned at = 0;
    while (keep->pieces[at].offset != offset)
        at++;
    return &keep->pieces[at];
}

static void leave(struct keep *keep, uint64_t offset)
{
    mutex_lock(&keep->lock);
    struct keep_piece *piece = find_locked(keep, offset);
    unsigned behind = (unsigned)(&keep->pieces[keep->piece_count] - piece) - 1;
    memmove(piece, piece + 1, behind * sizeof *piece);
    keep->piece_count--;
    mutex_unlock(&keep->lock);
}

/* The same of a segment that failed. What the driver refuses to give up of it stays, and is none of
 * the pool's. */
static void leave_failed(struct keep *keep, uint64_t offset)
{
    mutex_lock(&keep->lock);
    struct keep_piece *piece = find_locked(keep, offset);
    bool empty = !piece->mapped && !piece->stuck;
    piece->kept = false;
    piece->number = 0;
    mutex_unlock(&keep->lock);
    if (empty)
        leave(keep, offset);
}

static void has(struct keep *keep, uint64_t offset, driver_piece handle, bool mapped)
{
    mutex_lock(&keep->lock);
    struct keep_piece *piece = find_locked(keep, offset);
    piece->handle = handle;
    piece->mapped = mapped;
    mutex_unlock(&keep->lock);
}

static tarn_status map(const struct keep *keep, uint64_t offset, uint64_t size, driver_piece handle)
{
    return device_note(keep->device,
                       driver->map(keep->device->number, keep->base + offset, size, handle));
}

/* Lets devices reach a run of segments: those of a reader only to read, if the driver can. */
static tarn_status let_reach(struct keep *keep, uint64_t offset, uint64_t size, const int *devices,
                             int count)
{
    int device = keep->device->number;
    uintptr_t start = keep->base + offset;
    struct error_before before;
    error_attempt_begin(&before);
    if (keep->reads && driver->set_read && !keep->writable &&
        driver->set_read(device, start, size, devices, count) == TARN_OK) {
        error_attempt_end(&before, TARN_OK);
        return TARN_OK;
    }
    error_attempt_end(&before, TARN_OK);
    keep->writable = true;
    return device_note(keep->device, driver->set_access(device, start, size, devices, count));
}

/* Lets the device and its peers reach a run of segments. */
static tarn_status open_alone(struct keep *keep, uint64_t offset, uint64_t size)
{
    int devices[TARN_MAX_DEVICES], count = peers_of(keep->device, devices);
    return let_reach(keep, offset, size, devices, count);
}

/* Maps a new segment at its entered addresses, which have it then, also after a failure. */
static tarn_status map_new(struct keep *keep, uint64_t offset, uint64_t size, driver_piece handle)
{
    mutex_lock(&keeps_lock);
    tarn_status status = map(keep, offset, size, handle);
    has(keep, offset, handle, !status);
    if (!status)
        status = open_alone(keep, offset, size);
    mutex_unlock(&keeps_lock);
    return status;
}

/* Takes the piece out of its entered addresses: from now on no peer is given it. */
static struct keep_piece take_out(struct keep *keep, uint64_t offset)
{
    mutex_lock(&keeps_lock);
    mutex_lock(&keep->lock);
    struct keep_piece *entered = find_locked(keep, offset), piece = *entered;
    entered->mapped = entered->stuck = false;
    mutex_unlock(&keep->lock);
    mutex_unlock(&keeps_lock);
    return piece;
}

/* Releases a piece that is not mapped. If the driver refuses that, it is stuck at its addresses. */
static tarn_status release(struct keep *keep, uint64_t offset, driver_piece handle)
{
    tarn_status status = device_note(keep->device, driver->release(keep->device->number, handle));
    mutex_lock(&keep->lock);
    struct keep_piece *piece = find_locked(keep, offset);
    bool taken_over = piece->taken_over;
    piece->handle = handle;
    piece->stuck = status != TARN_OK;
    piece->taken_over = false;
    mutex_unlock(&keep->lock);
    if (taken_over)
        files_drop(&keep->files, offset);
    return status;
}

/* Unmaps and releases what is at entered addresses. What the driver refuses stays there. */
static tarn_status empty(struct keep *keep, uint64_t offset)
{
    struct keep_piece piece = take_out(keep, offset);
    tarn_status status = TARN_OK;
    if (piece.mapped)
        status = device_note(keep->device,
                             driver->unmap(keep->device->number, keep->base + offset, piece.size));
    if (status)
        has(keep, offset, piece.handle, true);
    else if (piece.mapped || piece.stuck)
        status = release(keep, offset, piece.handle);
    return status;
}

/* The same, and the addresses are no longer entered. */
static tarn_status give_up(struct keep *keep, uint64_t offset)
{
    tarn_status status = empty(keep, offset);
    if (!status)
        leave(keep, offset);
    return status;
}

/* Opens a segment that was mapped after the pool had begun; on failure it is gone. */
static tarn_status open_later(struct keep *keep, const struct keep_segment *segment)
{
    mutex_lock(&keeps_lock);
    tarn_status status = open_alone(keep, segment->offset, segment->size);
    mutex_unlock(&keeps_lock);
    if (!status)
        return TARN_OK;
    (void)empty(keep, segment->offset);
    leave_failed(keep, segment->offset);
    return status;
}

/* Makes a piece. Network cards may reach it, as the memory of registrable pools. */
static tarn_status create(const struct keep *keep, uint64_t size, driver_piece *handle)
{
    return device_note(keep->device,
                       driver->create(keep->device->number, size,
                                      DRIVER_PIECE_EXPORTABLE | DRIVER_PIECE_RDMA, handle));
}

/* The owner closes its file of a segment. If it is gone, so is the file. */
static void take_back(struct keep *keep, uint64_t offset, uint64_t size)
{
    struct error_before before;
    struct keep_segment segment = {offset, size, 0};
    error_attempt_begin(&before);
    (void)owner_ask(keep, KEEP_REMOVE, &segment, -1);
    error_attempt_end(&before, TARN_OK);
}

/* Numbers entered addresses that get new memory. */
static uint64_t number_next(struct keep *keep, uint64_t offset)
{
    mutex_lock(&keep->lock);
    uint64_t number = find_locked(keep, offset)->number = ++keep->numbered;
    mutex_unlock(&keep->lock);
    return number;
}

/* Hands a piece to the owner, by a file. */
static tarn_status hand_over(struct keep *keep, const struct keep_segment *segment,
                             driver_piece handle)
{
    int file = -1;
    tarn_status status =
        device_note(keep->device, driver->export(keep->device->number, handle, &file));
    if (status)
        return status;
    file_keep_from_children(file);
    has(keep, segment->offset, handle, false);
    status = owner_ask(keep, KEEP_ADD, segment, file);
    file_close(file);
    return status;
}

/* A segment in entered addresses: made, the owner's, mapped. They may have one that the driver has
 * refused to give up before. */
static tarn_status segment_make(struct keep *keep, uint64_t offset, uint64_t size)
{
    driver_piece handle = 0;
    tarn_status status = empty(keep, offset);
    struct keep_segment segment = {offset, size, number_next(keep, offset)};
    if (!status)
        status = create(keep, size, &handle);
    if (status)
        return status;
    status = hand_over(keep, &segment, handle);
    if (status) {
        (void)release(keep, offset, handle);
        return status;
    }
    status = map_new(keep, offset, size, handle);
    if (!status)
        return TARN_OK;
    take_back(keep, offset, size);
    mutex_lock(&keep->lock);
    bool mapped = find_locked(keep, offset)->mapped;
    mutex_unlock(&keep->lock);
    if (mapped)
        (void)empty(keep, offset);
    else
        (void)release(keep, offset, handle);
    return status;
}

/* The entered segment that meets some addresses, or NULL. */
static struct keep_piece *meeting_locked(struct keep *keep, const struct keep_segment *segment)
{
    for (unsigned i = 0; i < keep->piece_count; i++) {
        struct keep_piece *piece = &keep->pieces[i];
        if (piece->offset < segment->offset + segment->size &&
            segment->offset < piece->offset + piece->size)
            return piece;
    }
    return NULL;
}

/* Enters a segment that the owner gave. False if its addresses are none of the pool, or not free;
 * `had`: it is to be left out. */
static bool enter_given(struct keep *keep, const struct keep_segment *segment, bool *had)
{
    size_t granule = keep->device->properties.granule;
    if (!segment->size || segment->size % granule || segment->offset % granule ||
        segment->offset > keep->window || segment->size > keep->window - segment->offset)
        return false;
    mutex_lock(&keep->lock);
    struct keep_piece *piece = keep->reads ? meeting_locked(keep, segment) : NULL;
    *had = piece != NULL;
    if (!piece)
        piece = enter_locked(keep, segment->offset, segment->size);
    else if (piece->number != segment->number || piece->offset != segment->offset ||
             piece->size != segment->size)
        piece = NULL;
    if (piece) {
        piece->number = segment->number;
        piece->look = keep->looks;
        if (keep->numbered < segment->number)
            keep->numbered = segment->number;
    }
    mutex_unlock(&keep->lock);
    return *had || piece;
}

static tarn_status import(struct keep *keep, const struct keep_segment *segment, int file,
                          driver_piece *handle)
{
    int device = keep->device->number;
    tarn_status status =
        device_note(keep->device, driver->import(device, file, segment->size, handle));
    if (!status) {
        status = map(keep, segment->offset, segment->size, *handle);
        if (status)
            (void)release(keep, segment->offset, *handle);
    }
    if (status == TARN_ERROR_INVALID_ARGUMENT) /* which the caller's arguments were not */
        status =
            failed_within(TARN_ERROR_SYSTEM, "what the owner at %s gave is no segment of pool %s",
                          keep->path, keep->name);
    return status;
}

tarn_status window_adopt(struct keep *keep, const struct keep_segment *segment, int file)
{
    driver_piece handle = 0;
    bool had = false;
    if (!enter_given(keep, segment, &had))
        return failed(TARN_ERROR_SYSTEM,
                      "the owner at %s gave a segment of pool %s that does not fit its addresses",
                      keep->path, keep->name);
    if (had)
        return TARN_OK;
    tarn_status status = import(keep, segment, file, &handle);
    if (status) {
        leave_failed(keep, segment->offset);
        return status;
    }
    has(keep, segment->offset, handle, true);
    mutex_lock(&keep->lock);
    find_locked(keep, segment->offset)->taken_over = true;
    mutex_unlock(&keep->lock);
    window_keep(keep, segment->offset, true);
    return keep->begun ? open_later(keep, segment) : TARN_OK;
}

void window_settle(struct keep *keep)
{
    mutex_lock(&keep->lock);
    for (unsigned i = 0; i < keep->piece_count; i++)
        keep->pieces[i].kept = keep->pieces[i].look == keep->looks;
    mutex_unlock(&keep->lock);
}

unsigned window_kept(struct keep *keep, uint64_t from, struct keep_segment segments[KEEP_BATCH])
{
    unsigned count = 0;
    mutex_lock(&keep->lock);
    for (unsigned i = 0; i < keep->piece_count && count < KEEP_BATCH; i++) {
        const struct keep_piece *piece = &keep->pieces[i];
        bool has = keep->reads ? piece->mapped || piece->stuck : piece->kept;
        if (has && piece->offset >= from)
            segments[count++] = (struct keep_segment){piece->offset, piece->size, piece->number};
    }
    mutex_unlock(&keep->lock);
    return count;
}

void window_keep(struct keep *keep, uint64_t offset, bool kept)
{
    mutex_lock(&keep->lock);
    find_locked(keep, offset)->kept = kept;
    mutex_unlock(&keep->lock);
}

/* The piece stays while the caller holds `talking`: its end begins with a request to the owner. */
tarn_status window_export(struct keep *keep, uint64_t offset, int *file)
{
    struct keep_piece found = {0};
    mutex_lock(&keep->lock);
    for (unsigned i = 0; i < keep->piece_count; i++)
        if (keep->pieces[i].kept && keep->pieces[i].offset == offset)
            found = keep->pieces[i];
    mutex_unlock(&keep->lock);
    if (!found.handle)
        return failed(TARN_ERROR_SYSTEM, "the owner at %s asks for a segment that pool %s has not",
                      keep->path, keep->name);
    if (!found.taken_over)
        return device_note(keep->device, driver->export(keep->device->number, found.handle, file));
    *file = files_get(&keep->files, offset);
    if (*file >= 0)
        return TARN_OK;
    return failed(TARN_ERROR_SYSTEM,
                  "pool %s has lost the file of a segment that it took over, so the owner at %s "
                  "cannot have it: too few files may be open (ulimit -n)",
                  keep->name, keep->path);
}

bool keep_is_full(const struct store *store)
{
    struct keep *keep = keep_of_store(store);
    mutex_lock(&keep->lock);
    unsigned count = keep->piece_count;
    mutex_unlock(&keep->lock);
    return count == KEEP_SEGMENTS_MOST;
}

bool keep_took_over(const struct store *store, uintptr_t address)
{
    struct keep *keep = keep_of_store(store);
    bool taken_over = false;
    mutex_lock(&keep->lock);
    for (unsigned i = 0; i < keep->piece_count; i++)
        if (keep->base + keep->pieces[i].offset == address)
            taken_over = keep->pieces[i].taken_over;
    mutex_unlock(&keep->lock);
    return taken_over;
}

/* The first segment that is no longer the owner's; one of no bytes if there is none. */
static struct keep_piece first_old(struct keep *keep)
{
    struct keep_piece found = {0};
    mutex_lock(&keep->lock);
    for (unsigned i = 0; !found.size && i < keep->piece_count; i++)
        if (!keep->pieces[i].kept)
            found = keep->pieces[i];
    mutex_unlock(&keep->lock);
    return found;
}

bool window_has_old(struct keep *keep)
{
    return first_old(keep).size != 0;
}

tarn_status window_let_go(struct keep *keep)
{
    for (struct keep_piece old; (old = first_old(keep)).size;) {
        tarn_status status = give_up(keep, old.offset);
        if (status)
            return status;
    }
    return TARN_OK;
}

uint64_t window_take_over(struct keep *keep)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; driver_counting.takes_over && i < keep->piece_count; i++) {
        const struct keep_piece *piece = &keep->pieces[i];
        if (driver_counting.takes_over(keep->device->number, piece->handle, piece->size))
            bytes += piece->size;
    }
    return bytes;
}

void window_abandon(struct keep *keep)
{
    for (unsigned i = keep->piece_count; i > 0; i--) /* what is behind it has left, or stays */
        (void)give_up(keep, keep->pieces[i - 1].offset);
}

/* The first piece from an offset on that the driver has refused to release; one of no bytes if
 * there is none. */
static struct keep_piece stuck_from(struct keep *keep, uint64_t offset)
{
    struct keep_piece found = {0};
    mutex_lock(&keep->lock);
    for (unsigned i = 0; !found.size && i < keep->piece_count; i++)
        if (keep->pieces[i].stuck && keep->pieces[i].offset >= offset)
            found = keep->pieces[i];
    mutex_unlock(&keep->lock);
    return found;
}

/* The addresses stay entered: a suspended segment may have them. */
static void release_stuck(struct keep *keep)
{
    for (struct keep_piece piece = stuck_from(keep, 0); piece.size;
         piece = stuck_from(keep, piece.offset + piece.size)) {
        mutex_lock(&keep->lock);
        struct keep_piece *entered = find_locked(keep, piece.offset);
        bool stuck = entered->stuck;
        entered->stuck = false;
        mutex_unlock(&keep->lock);
        if (stuck)
            (void)release(keep, piece.offset, piece.handle);
    }
}

void windows_release_stuck(const struct device *device)
{
    mutex_lock(&keeps_lock);
    for (struct keep *keep = keeps; keep; keep = keep->next)
        if (keep->device == device)
            release_stuck(keep);
    mutex_unlock(&keeps_lock);
}

static struct keep *left_behind; /* keeps_lock */

void window_leave(struct keep *keep)
{
    mutex_lock(&keeps_lock);
    keep->next = left_behind;
    left_behind = keep;
    mutex_unlock(&keeps_lock);
}

struct keep *window_left(void)
{
    mutex_lock(&keeps_lock);
    struct keep *list = left_behind;
    left_behind = NULL;
    mutex_unlock(&keeps_lock);
    return list;
}

/* The allocator -------------------------------------------------------------------------------- */

tarn_status keep_segment(const struct store *store, size_t size, uintptr_t *address)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct keep *keep = keep_of_store(store);
    tarn_status status = keep_refuse_reader(keep, "an allocation");
    if (status)
        return status;
    mutex_lock(&keep->lock);
    const struct keep_piece *piece = enter_locked(keep, UINT64_MAX, size);
    uint64_t offset = piece ? piece->offset : 0;
    mutex_unlock(&keep->lock);
    if (!piece)
        return failed(TARN_ERROR_OUT_OF_MEMORY, "pool %s has no %zu bytes of addresses left",
                      keep->name, size);
    status = segment_make(keep, offset, size);
    if (status)
        leave_failed(keep, offset);
    else
        *address = keep->base + offset;
    return status;
}

/* If the process is killed before the owner has answered, the owner still has the segment, in which
 * no block is sealed. */
tarn_status keep_vacate(const struct store *store, uintptr_t address, size_t size)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct keep *keep = keep_of_store(store);
    uint64_t offset = address - keep->base;
    struct keep_piece piece = take_out(keep, offset);
    tarn_status status =
        device_note(keep->device, driver->unmap(keep->device->number, address, size));
    if (status) {
        has(keep, offset, piece.handle, true);
        return status;
    }
    struct error_before before;
    error_attempt_begin(&before);
    (void)release(keep, offset, piece.handle);
    error_attempt_end(&before, TARN_OK);
    take_back(keep, offset, size);
    return TARN_OK;
}

tarn_status keep_occupy(const struct store *store, uintptr_t address, size_t size)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct keep *keep = keep_of_store(store);
    return segment_make(keep, address - keep->base, size);
}

/* A segment of a suspended pool may have no memory. */
tarn_status keep_give_back(const struct store *store, uintptr_t address, size_t size)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct keep *keep = keep_of_store(store);
    uint64_t offset = address - keep->base;
    mutex_lock(&keep->lock);
    bool kept = find_locked(keep, offset)->kept;
    mutex_unlock(&keep->lock);
    if (!keep->returns && kept)
        take_back(keep, offset, size);
    return give_up(keep, offset);
}

/* Never called: segments are made by keep_segment(), which says why there is none, and given back
 * by keep_give_back(). */
static void *allocate(size_t size, int device, void *stream, void *user)
{
    (void)size, (void)device, (void)stream, (void)user;
    return NULL;
}

static void deallocate(void *pointer, size_t size, int device, void *stream, void *user)
{
    (void)pointer, (void)size, (void)device, (void)stream, (void)user;
}

static void gone(void *user)
{
    struct keep *keep = user;
    struct keep **place = &keeps;
    mutex_lock(&keeps_lock);
    while (*place && *place != keep)
        place = &(*place)->next;
    if (*place)
        *place = keep->next;
    mutex_unlock(&keeps_lock);
    keep_destroy(keep);
}

const tarn_pool_allocator keep_allocator = {
    .size = sizeof keep_allocator, .alloc = allocate, .free = deallocate, .gone = gone};

/* Peers ---------------------------------------------------------------------------------------- */

/* One call of the driver for each run of segments without a hole. The list has the pool even after
 * a failure: gone() takes it out. */
static tarn_status enter_alone(struct keep *keep)
{
    tarn_status status = TARN_OK;
    keep->next = keeps;
    keeps = keep;
    for (unsigned i = 0, from = 0; !status && i < keep->piece_count; i++) {
        const struct keep_piece *first = &keep->pieces[from], *last = &keep->pieces[i];
        uint64_t end = last->offset + last->size;
        if (i + 1 < keep->piece_count && keep->pieces[i + 1].offset == end)
            continue;
        status = open_alone(keep, first->offset, end - first->offset);
        from = i + 1;
    }
    return status;
}

tarn_status window_enter(struct keep *keep)
{
    mutex_lock(&keeps_lock);
    tarn_status status = enter_alone(keep);
    mutex_unlock(&keeps_lock);
    return status;
}

/* The first mapped segment from an offset on; one that is not mapped if there is none. */
static struct keep_piece mapped_from(struct keep *keep, uint64_t offset)
{
    struct keep_piece found = {0};
    mutex_lock(&keep->lock);
    for (unsigned i = 0; !found.mapped && i < keep->piece_count; i++)
        if (keep->pieces[i].offset >= offset)
            found = keep->pieces[i];
    mutex_unlock(&keep->lock);
    return found;
}

static tarn_status grant_alone(struct keep *keep, int peer)
{
    struct keep_piece piece = mapped_from(keep, 0);
    tarn_status status = TARN_OK;
    for (; !status && piece.mapped; piece = mapped_from(keep, piece.offset + piece.size))
        status = let_reach(keep, piece.offset, piece.size, &peer, 1);
    return status;
}

bool window_reads(uintptr_t address, char name[TARN_KEEP_NAME_BYTES])
{
    bool found = false;
    mutex_lock(&keeps_lock);
    for (const struct keep *keep = keeps; !found && keep; keep = keep->next) {
        found = keep->reads && address - keep->base < keep->window;
        if (found)
            memcpy(name, keep->name, TARN_KEEP_NAME_BYTES);
    }
    mutex_unlock(&keeps_lock);
    return found;
}

tarn_status keeps_grant(const struct device *device, int peer)
{
    tarn_status status = TARN_OK;
    mutex_lock(&keeps_lock);
    for (struct keep *keep = keeps; !status && keep; keep = keep->next)
        if (keep->device == device)
            status = grant_alone(keep, peer);
    mutex_unlock(&keeps_lock);
    return status;
}
