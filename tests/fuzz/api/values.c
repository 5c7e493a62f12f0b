/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How the fuzzer of the API chooses arguments, and what it remembers of their fates. */
#include "api/api.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct world world;
_Thread_local int this_thread;

void demand_at(bool condition, const char *text, const char *file, int line)
{
    if (condition)
        return;
    fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", file, line, text, tarn_last_error());
    abort();
}

bool take_bool(void)
{
    return take() & 1;
}

uint64_t take_number(void)
{
    uint8_t kind = take();
    uint64_t number = 0;
    for (int i = 0; i < (kind & 7); i++)
        number = number << 8 | take();
    return kind & 8 ? ~number : number;
}

int any_device(void)
{
    static const int others[] = {
        TARN_CURRENT_DEVICE, DEVICES, TARN_MAX_DEVICES - 1, TARN_MAX_DEVICES, INT_MAX, INT_MIN, -2,
        DEVICES + 1};
    uint8_t choice = take();
    return choice < 200 ? choice % DEVICES : PICK(others, choice);
}

size_t any_size(void)
{
    static const size_t edges[] = {0,
                                   1,
                                   256,
                                   512,
                                   4096,
                                   (size_t)64 << 10,
                                   (size_t)1 << 20,
                                   (size_t)2 << 20,
                                   (size_t)10 << 20,
                                   (size_t)20 << 20,
                                   DEVICE_MEMORY,
                                   4 * DEVICE_MEMORY,
                                   TARN_MAX_SIZE,
                                   SIZE_MAX / 2 + 1,
                                   SIZE_MAX - 4095,
                                   SIZE_MAX};
    uint8_t choice = take();
    if (choice < 96)
        return (size_t)take() << (choice % 16);
    if (choice < 128)
        return (size_t)take_number();
    return PICK(edges, choice) + (choice / 16) % 3 - 1;
}

/* Pointers of which none is an object of tarn; several are not mapped. */
void *wrong_pointer(void)
{
    static uint64_t data[64];
    static void *nowhere, *given_back;
    if (!nowhere) {
        nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        given_back = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        (void)munmap(given_back, 4096);
    }
    void *wrong[] = {NULL,
                     (void *)(uintptr_t)1,
                     (void *)(uintptr_t)8,
                     (void *)(uintptr_t)512,
                     data,
                     (char *)data + 1,
                     __builtin_frame_address(0),
                     nowhere,
                     given_back,
                     (void *)(uintptr_t)0xdeadbeefdeadbe00,
                     (void *)(UINTPTR_MAX / 2 + 1),
                     (void *)(UINTPTR_MAX - 511),
                     (void *)UINTPTR_MAX,
                     (void *)(uintptr_t)&demand_at,
                     &world,
                     world.blocks[0].pointer};
    return wrong[take() % (sizeof wrong / sizeof *wrong)];
}

struct block *any_block(void)
{
    return &world.blocks[take() % BLOCKS];
}

void *any_pointer(void)
{
    uint8_t choice = take();
    if (choice >= 224)
        return wrong_pointer();
    const struct block *block = any_block();
    uintptr_t start = (uintptr_t)block->pointer;
    if (choice < 176)
        return block->pointer;
    static const size_t into[] = {1, 8, 511, 512, 4096};
    uintptr_t places[] = {start + PICK(into, choice), start - PICK(into, choice),
                          start + block->size - 1, start + block->size, start + block->size / 2};
    return (void *)PICK(places, choice / 8);
}

tarn_stream any_stream(void)
{
    uint8_t choice = take();
    if (choice < 48)
        return choice & 1 ? TARN_STREAM_PER_THREAD : TARN_STREAM_LEGACY;
    if (choice < 144)
        return world.streams[choice % SLOTS].value;
    if (choice < 224)
        return world.leased_streams[choice % SLOTS].value;
    if (choice < 240) /* of another generation, or the slot beside it */
        return world.streams[choice % SLOTS].value + ((uint64_t)1 << (take() % 64));
    return take_number();
}

void *any_object(const struct slot *slots)
{
    const struct slot *kinds[] = {world.pools, world.events, world.shares, world.checkpoints,
                                  world.graphs};
    uint8_t choice = take();
    if (choice < 208)
        return slots[choice % SLOTS].object;
    if (choice < 224)
        return PICK(kinds, choice)[take() % SLOTS].object;
    if (choice < 240)
        return (void *)((uintptr_t)slots[choice % SLOTS].object + 1 + take() % 64);
    return wrong_pointer();
}

uint64_t any_value(const struct slot *slots)
{
    uint8_t choice = take();
    return choice < 224 ? slots[choice % SLOTS].value : take_number();
}

tarn_library any_library(void)
{
    uint8_t choice = take();
    if (choice < 192)
        return world.library;
    return choice < 240 ? choice % 20 : (int)take_number();
}

const char *any_text(void)
{
    static const char *const texts[] = {
        "",  "a",  "layer", "name with a space", "%s%n%p", "\x1b[31m", "\xff\xfe", "12345", "TARN",
        "/", "..", "a/b",
    };
    static char room[2][600];
    static size_t next;
    uint8_t choice = take();
    if (choice >= 240)
        return NULL;
    if (choice < 160)
        return PICK(texts, choice);
    char *text = room[next++ % 2];
    size_t length = choice < 200 ? take() : 256 + take();
    memset(text, 'x', length);
    text[length] = '\0';
    return text;
}

const char *any_path(void)
{
    static const char *const names[] = {"file",    "other", "",           ".",          "..",
                                        "no/file", "\xff",  "directory/", "file/below", "%p"};
    static char path[8192];
    uint8_t choice = take();
    if (choice >= 248)
        return NULL;
    if (choice >= 232) { /* longer than any */
        memset(path, 'a', sizeof path - 1);
        return path;
    }
    snprintf(path, sizeof path, "%s/%s", world.directory, PICK(names, choice));
    return path;
}

size_t struct_size(size_t right)
{
    uint8_t choice = take();
    if (choice < 224)
        return right;
    static const size_t wrong[] = {0, 1, 8, SIZE_MAX};
    return choice < 240 ? PICK(wrong, choice) : right + 8 * (choice % 2) - 4;
}

void *or_null(void *pointer)
{
    return take() < 248 ? pointer : NULL;
}

/* ---- Fates ---- */

bool has_room(const struct slot *slots)
{
    size_t used = 0;
    while (used < SLOTS && slots[used].live)
        used++;
    return used < SLOTS;
}

struct slot *slot_add(struct slot *slots, void *object, uint64_t value)
{
    struct slot *place = NULL;
    size_t first = take() % SLOTS;
    for (size_t i = 0; i < SLOTS && !place; i++)
        if (!slots[(first + i) % SLOTS].live)
            place = &slots[(first + i) % SLOTS];
    if (place)
        *place = (struct slot){.object = object, .value = value, .live = true};
    return place;
}

void slot_ended(struct slot *slots, const void *object, uint64_t value)
{
    for (size_t i = 0; i < SLOTS; i++)
        if (slots[i].live && slots[i].object == object && slots[i].value == value) {
            slots[i].live = false;
            return;
        }
}

static void block_give_back(struct block *block)
{
    block->live = false;
    if (block->kind == IMPORTED_BLOCK)
        (void)tarn_import_close(block->pointer);
    else
        (void)tarn_free(block->pointer);
}

void block_add(enum block_kind kind, void *pointer, size_t size, tarn_stream stream)
{
    struct block new = {
        .pointer = pointer, .size = size, .stream = stream, .kind = kind, .live = true};
    if (!pointer)
        return;
    size_t at = take() % BLOCKS;
    for (size_t i = 0; i < BLOCKS; i++) {
        struct block *block = &world.blocks[(at + i) % BLOCKS];
        if (!block->live) {
            *block = new;
            return;
        }
    }
    block_give_back(&new);
}

void block_ended(enum block_kind kind, const void *pointer)
{
    for (size_t i = 0; i < BLOCKS; i++)
        if (world.blocks[i].live && world.blocks[i].kind == kind &&
            world.blocks[i].pointer == pointer) {
            world.blocks[i].live = false;
            return;
        }
}
