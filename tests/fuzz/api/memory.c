/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* memory.h, observe.h, share.h, pinned.h and config.h. */
#include "api/api.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Blocks ---- */

static void check_block(tarn_status status, void *pointer, size_t size, tarn_stream stream)
{
    DEMAND((status == TARN_OK && size) == (pointer != NULL));
    DEMAND((uintptr_t)pointer % TARN_BLOCK_UNIT == 0);
    block_add(DEVICE_BLOCK, pointer, size, stream);
}

static void fuzz_tarn_malloc(void)
{
    size_t size = any_size();
    tarn_stream stream = 0;
    int device = 0;
    if (!tarn_device_get(&device))
        (void)tarn_stream_get(device, &stream);
    void *pointer = tarn_malloc(size);
    DEMAND(pointer || !size || tarn_last_status());
    block_add(DEVICE_BLOCK, pointer, size, stream);
}

static void fuzz_tarn_alloc_on(void)
{
    void *pointer = NULL, **place = or_null(&pointer);
    tarn_stream stream = any_stream();
    size_t size = any_size();
    tarn_status status = tarn_alloc_on(stream, size, place);
    DEMAND(place || status);
    check_block(status, pointer, size, stream);
}

static void fuzz_tarn_alloc(void)
{
    void *pointer = NULL, **place = or_null(&pointer);
    tarn_alloc_options options = {.size = struct_size(sizeof options),
                                  .device = any_device(),
                                  .stream = any_stream(),
                                  .alignment =
                                      take_bool() ? (size_t)1 << (take() % 64) : any_size(),
                                  .tag = (tarn_tag)take_number(),
                                  .wait = take_bool() ? TARN_NO_WAIT : take()};
    size_t size = any_size();
    tarn_status status = tarn_alloc(or_null(&options), size, place);
    DEMAND(place || status);
    DEMAND(!pointer || options.alignment < 2 || (uintptr_t)pointer % options.alignment == 0);
    check_block(status, pointer, size, options.stream);
}

/* A stale pointer is not given to a free when its memory was handed out again to somebody whom this
 * sequence does not know, a workspace: that free would be right, and nothing could tell. */
static void *any_to_free(void)
{
    void *pointer = any_pointer();
    tarn_block_info info = {.size = sizeof info};
    for (size_t i = 0; i < BLOCKS; i++)
        if (world.blocks[i].live && world.blocks[i].pointer == pointer)
            return pointer;
    return !tarn_pointer_info_get(pointer, &info) && info.base == pointer ? NULL : pointer;
}

static void fuzz_tarn_free(void)
{
    void *pointer = any_to_free();
    if (tarn_free(pointer))
        return;
    block_ended(DEVICE_BLOCK, pointer);
    block_ended(PINNED_BLOCK, pointer);
}

static void fuzz_tarn_free_on(void)
{
    void *pointer = any_to_free();
    if (!tarn_free_on(pointer, any_stream()))
        block_ended(DEVICE_BLOCK, pointer);
}

static void fuzz_tarn_free_after(void)
{
    void *pointer = any_to_free();
    if (!tarn_free_after(pointer, any_object(world.events)))
        block_ended(DEVICE_BLOCK, pointer);
}

static void fuzz_tarn_record_stream(void)
{
    (void)tarn_record_stream(any_pointer(), any_stream());
}

static void fuzz_tarn_extend(void)
{
    void *pointer = any_pointer();
    size_t size = any_size();
    if (tarn_extend(pointer, size))
        return;
    for (size_t i = 0; i < BLOCKS; i++)
        if (world.blocks[i].live && world.blocks[i].pointer == pointer &&
            world.blocks[i].size < size)
            world.blocks[i].size = size;
}

static void fuzz_tarn_usable_size_get(void)
{
    size_t size = 0;
    const struct block *block = any_block();
    const void *pointer = take_bool() ? block->pointer : any_pointer();
    tarn_status status = tarn_usable_size_get(pointer, or_null(&size));
    DEMAND(status || !block->live || block->kind != DEVICE_BLOCK || pointer != block->pointer ||
           !size || size >= block->size);
}

static void fuzz_tarn_pointer_info_get(void)
{
    tarn_block_info info = {.size = struct_size(sizeof info)};
    const void *pointer = any_pointer();
    tarn_block_info *place = or_null(&info);
    if (!tarn_pointer_info_get(pointer, place))
        DEMAND((uintptr_t)pointer - (uintptr_t)info.base < info.usable_size);
}

static void fuzz_tarn_tag_intern(void)
{
    tarn_tag tag = 0;
    const char *text = any_text();
    if (!tarn_tag_intern(text, or_null(&tag)))
        DEMAND(strncmp(tarn_tag_text(tag), text, strlen(tarn_tag_text(tag))) == 0);
}

static void fuzz_tarn_tag_text(void)
{
    DEMAND(tarn_tag_text((tarn_tag)take_number()) != NULL);
}

static void fuzz_tarn_device_trim(void)
{
    (void)tarn_device_trim(any_device(), any_size());
}

static void fuzz_tarn_compact(void)
{
    size_t gained = 77;
    tarn_status status = tarn_compact(any_device(), any_size(), &gained);
    DEMAND(status == TARN_OK || gained == 77);
}

static void fuzz_tarn_caching_set(void)
{
    bool previous;
    (void)tarn_caching_set(take() < 128, or_null(&previous));
}

static void fuzz_tarn_device_limit_set(void)
{
    (void)tarn_device_limit_set(any_device(), any_size());
}

static void fuzz_tarn_device_limit_get(void)
{
    size_t bytes = 0;
    (void)tarn_device_limit_get(any_device(), or_null(&bytes));
}

/* ---- Observers, ranges, pins ---- */

/* Observers may free and ask, and before_growth says whether it freed. */
static bool free_one(void *argument)
{
    struct block *block = argument;
    if (!block->live || block->kind != DEVICE_BLOCK || tarn_free(block->pointer))
        return false;
    block_ended(DEVICE_BLOCK, block->pointer);
    return true;
}

static void on_range(const tarn_mapping *range, void *user)
{
    tarn_mapping again;
    (void)free_one(user);
    (void)tarn_mapping_get(range->address, &again);
}

static bool on_shortage(const tarn_shortage *shortage, void *user)
{
    DEMAND(shortage->device >= 0 && shortage->device < DEVICES);
    return free_one(user);
}

static bool on_reclaim(int device, size_t bytes, void *user)
{
    DEMAND(device >= 0 && device < DEVICES && bytes > 0);
    return free_one(user);
}

static void fuzz_tarn_observer_add(void)
{
    uint8_t which = take();
    tarn_observer observer = 0;
    tarn_observer_options options = {.size = struct_size(sizeof options),
                                     .device = which & 64 ? any_device() : TARN_ALL_DEVICES,
                                     .user = any_block(),
                                     .mapped = which & 1 ? on_range : NULL,
                                     .unmapping = which & 2 ? on_range : NULL,
                                     .out_of_memory = which & 4 ? on_shortage : NULL,
                                     .before_growth = which & 8 ? on_reclaim : NULL,
                                     .any_thread = which & 16};
    if (has_room(world.observers) && !tarn_observer_add(or_null(&options), or_null(&observer)))
        slot_add(world.observers, NULL, observer);
}

static void fuzz_tarn_observer_remove(void)
{
    tarn_observer observer = any_value(world.observers);
    if (!tarn_observer_remove(observer))
        slot_ended(world.observers, NULL, observer);
}

static void fuzz_tarn_mapping_get(void)
{
    tarn_mapping range = {0};
    const void *pointer = any_pointer();
    if (!tarn_mapping_get(pointer, or_null(&range)))
        DEMAND((uintptr_t)pointer - (uintptr_t)range.address < range.bytes);
}

static void fuzz_tarn_anchor(void)
{
    void *pointer = any_pointer();
    size_t size = any_size();
    if (has_room(world.pins) && !tarn_anchor(pointer, size))
        slot_add(world.pins, pointer, size);
}

static void fuzz_tarn_unanchor(void)
{
    const struct slot *pin = &world.pins[take() % SLOTS];
    const void *pointer = take() < 192 ? pin->object : any_pointer();
    size_t size = take() < 192 ? pin->value : any_size();
    if (!tarn_unanchor(pointer, size))
        slot_ended(world.pins, pointer, size);
}

/* ---- Shares ---- */

static int any_socket(void)
{
    static const int wrong[] = {-1, 0x7fffffff, -0x7fffffff, 1 << 20};
    uint8_t choice = take();
    if (choice < 224)
        return world.sockets[choice % 2];
    return choice < 240 ? PICK(wrong, choice) : world.wrong_file;
}

static void fuzz_tarn_export_enable(void)
{
    (void)tarn_export_enable(any_device());
}

static void fuzz_tarn_export(void)
{
    tarn_share *share = NULL;
    if (has_room(world.shares) && !tarn_export(any_pointer(), or_null(&share)))
        slot_add(world.shares, share, 0);
}

static void fuzz_tarn_share_close(void)
{
    tarn_share *share = any_object(world.shares);
    if (!tarn_share_close(share))
        slot_ended(world.shares, share, 0);
}

static void fuzz_tarn_share_info_get(void)
{
    tarn_share_info info = {.size = struct_size(sizeof info)};
    tarn_share_info *place = or_null(&info);
    if (!tarn_share_info_get(any_object(world.shares), place))
        DEMAND(info.offset + info.bytes <= info.mapped);
}

static void fuzz_tarn_share_send(void)
{
    (void)tarn_share_send(any_socket(), any_object(world.shares));
}

/* What was sent, or any bytes in its place. */
static void fuzz_tarn_share_receive(void)
{
    tarn_share *share = NULL;
    int socket = any_socket();
    if (take() >= 240)
        (void)send(world.sockets[0], &world, take(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (has_room(world.shares) && !tarn_share_receive(socket, or_null(&share)))
        slot_add(world.shares, share, 0);
}

static void fuzz_tarn_import(void)
{
    void *pointer = NULL;
    const tarn_share *share = any_object(world.shares);
    tarn_share_info info = {.size = sizeof info};
    if (tarn_import(share, any_device(), or_null(&pointer)))
        return;
    DEMAND(tarn_share_info_get(share, &info) == TARN_OK);
    block_add(IMPORTED_BLOCK, pointer, info.bytes, 0);
}

static void fuzz_tarn_import_close(void)
{
    void *pointer = any_pointer();
    if (!tarn_import_close(pointer))
        block_ended(IMPORTED_BLOCK, pointer);
}

/* ---- Shares of pools ---- */

static void fuzz_tarn_pool_export(void)
{
    tarn_share *share = NULL;
    tarn_pool *pool = any_object(world.pools);
    const tarn_share *before = take() % 2 ? any_object(world.shares) : NULL;
    if (has_room(world.shares) && !tarn_pool_export(pool, before, or_null(&share)))
        slot_add(world.shares, share, 0);
}

static void fuzz_tarn_share_revoke(void)
{
    (void)tarn_share_revoke(any_object(world.shares));
}

static void fuzz_share_importers(void)
{
    tarn_share_info info = {.size = sizeof info};
    if (!tarn_share_info_get(any_object(world.shares), or_null(&info)))
        DEMAND(info.importers <= SLOTS);
}

static void fuzz_tarn_pool_import(void)
{
    tarn_imported_pool *imported = NULL;
    const tarn_share *share = any_object(world.shares);
    int device = any_device();
    if (has_room(world.imported) && !tarn_pool_import(share, device, or_null(&imported)))
        slot_add(world.imported, imported, 0);
}

static void fuzz_tarn_imported_pool_update(void)
{
    tarn_imported_pool *imported = any_object(world.imported);
    (void)tarn_imported_pool_update(imported, any_object(world.shares));
}

static void fuzz_tarn_imported_pool_find(void)
{
    void *pointer = NULL;
    tarn_imported_pool *imported = any_object(world.imported);
    const void *address = any_pointer();
    size_t size = any_size();
    if (!tarn_imported_pool_find(imported, address, size, or_null(&pointer)) && size > 0)
        ((volatile char *)pointer)[size - 1] = *(volatile char *)pointer;
}

static void fuzz_tarn_imported_pool_state_get(void)
{
    tarn_import_state state = TARN_IMPORT_CURRENT;
    if (!tarn_imported_pool_state_get(any_object(world.imported), or_null(&state)))
        DEMAND(state != TARN_IMPORT_ORPHANED);
}

static void fuzz_tarn_imported_pool_close(void)
{
    tarn_imported_pool *imported = any_object(world.imported);
    if (!tarn_imported_pool_close(imported))
        slot_ended(world.imported, imported, 0);
}

/* ---- Pinned memory ---- */

static void fuzz_tarn_pinned_alloc(void)
{
    void *pointer = NULL;
    size_t size = any_size();
    if (!tarn_pinned_alloc(take_bool() ? TARN_STREAM_CURRENT : any_stream(), size,
                           or_null(&pointer)))
        block_add(PINNED_BLOCK, pointer, size, 0);
}

static void fuzz_tarn_pinned_contains(void)
{
    const struct block *block = any_block();
    DEMAND(!block->live || block->kind != PINNED_BLOCK || tarn_pinned_contains(block->pointer));
    (void)tarn_pinned_contains(any_pointer());
}

static void fuzz_tarn_pinned_trim(void)
{
    (void)tarn_pinned_trim(any_size());
}

static void fuzz_tarn_pinned_forget_captures(void)
{
    (void)tarn_pinned_forget_captures();
}

static void fuzz_tarn_pinned_limit_set(void)
{
    size_t bytes = any_size();
    /* The machine is not to be filled */
    (void)tarn_pinned_limit_set(bytes < DEVICE_MEMORY ? bytes : DEVICE_MEMORY);
}

static void fuzz_tarn_pinned_stats_get(void)
{
    tarn_pinned_stats stats = {.size = struct_size(sizeof stats)};
    (void)tarn_pinned_stats_get(or_null(&stats));
}

static void fuzz_tarn_pinned_stats_reset(void)
{
    (void)tarn_pinned_stats_reset((tarn_stats_what)(take() % 3));
}

/* ---- Settings ---- */

static void fuzz_tarn_configuration_set(void)
{
    static const char *const settings[] = {"all:default",
                                           "segments:plain",
                                           "segments:exact",
                                           "segments:virtual",
                                           "limit_mb:32",
                                           "max_split_size_mb:21",
                                           "garbage_collection_threshold:0.5",
                                           "roundup_power2_divisions:[256:2,>:4]",
                                           "leave_free_mb:16",
                                           "pinned_limit_mb:16",
                                           "plan:/nowhere",
                                           "backend:cudaMallocAsync",
                                           "max_split_size_mb:99999999999999999999",
                                           "all:default,all:default",
                                           "segments"};
    uint8_t choice = take();
    (void)tarn_configuration_set(choice < 224 ? PICK(settings, choice) : any_text());
}

static void fuzz_tarn_configuration_get(void)
{
    char text[2048];
    size_t needed = 0, size = take_bool() ? sizeof text : take();
    memset(text, 0x55, sizeof text);
    tarn_status status = tarn_configuration_get(or_null(text), size, or_null(&needed));
    DEMAND(status || needed <= sizeof text);
}

static void fuzz_tarn_configuration_note_get(void)
{
    const char *text = NULL;
    (void)tarn_configuration_note_get((int)take_number(), or_null(&text));
}

const struct api_call api_memory[] = {
    CALL(tarn_malloc),
    CALL(tarn_alloc_on),
    CALL(tarn_alloc),
    CALL(tarn_free),
    CALL(tarn_free_on),
    CALL(tarn_free_after),
    CALL(tarn_record_stream),
    CALL(tarn_extend),
    CALL(tarn_usable_size_get),
    CALL(tarn_pointer_info_get),
    CALL(tarn_tag_intern),
    CALL(tarn_tag_text),
    CALL(tarn_device_trim),
    CALL(tarn_compact),
    CALL(tarn_caching_set),
    CALL(tarn_device_limit_set),
    CALL(tarn_device_limit_get),
    CALL(tarn_observer_add),
    CALL(tarn_observer_remove),
    CALL(tarn_mapping_get),
    CALL(tarn_anchor),
    CALL(tarn_unanchor),
    CALL(tarn_export_enable),
    CALL(tarn_export),
    CALL(tarn_share_close),
    CALL(tarn_share_info_get),
    CALL(tarn_share_send),
    CALL(tarn_share_receive),
    CALL(tarn_import),
    CALL(tarn_import_close),
    CALL(tarn_pinned_alloc),
    CALL(tarn_imported_pool_close),
    ALSO(tarn_free, tarn_free),
    ALSO(tarn_record_stream, tarn_record_stream),
    CALL(tarn_imported_pool_state_get),
    CALL(tarn_pinned_contains),
    CALL(tarn_pinned_trim),
    CALL(tarn_pinned_forget_captures),
    CALL(tarn_pinned_limit_set),
    CALL(tarn_imported_pool_find),
    CALL(tarn_pinned_stats_get),
    CALL(tarn_pinned_stats_reset),
    CALL(tarn_configuration_set),
    CALL(tarn_configuration_get),
    CALL(tarn_configuration_note_get),
    CALL(tarn_pool_export),
    CALL(tarn_share_revoke),
    ALSO(tarn_share_info_get, share_importers),
    CALL(tarn_pool_import),
    CALL(tarn_imported_pool_update),
    {0},
};
