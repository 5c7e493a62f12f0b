/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The records of sealed blocks, by offset and by name, and the reading of a layout. Owns the memory
 * of all records. Nothing that is read from a layout is trusted: another process writes it. */
#include "memory/keep/seals.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

struct object_pool seals = OBJECT_POOL(struct seal);

int seals_by_offset(const struct tree_node *a, const struct tree_node *b)
{
    uint64_t x = SEAL_OF(a)->offset, y = SEAL_OF(b)->offset;
    return x < y ? -1 : x > y;
}

static bool is_from(const struct tree_node *node, uint64_t offset)
{
    return SEAL_OF(node)->offset >= offset;
}

static int compare(const void *a, const void *b)
{
    const struct layout_block *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static bool has_place(const struct keep *keep, size_t place)
{
    return keep->taken[place / 64] >> place % 64 & 1;
}

tarn_status sealed_read(const struct keep *keep, struct sealed *sealed)
{
    size_t room = layout_used(keep->layout);
    if (!room)
        return TARN_OK;
    sealed->list = pages_map(room * sizeof *sealed->list);
    if (!sealed->list)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for %zu sealed blocks", room);
    for (size_t i = 0; i < room; i++) {
        const struct layout_block *place = &keep->layout->blocks[i];
        struct layout_block *copy = &sealed->list[sealed->count];
        if (has_place(keep, i) || !layout_read(place, copy))
            continue;
        atomic_init(&copy->state, (uint32_t)i);
        sealed->count++;
    }
    sealed->bytes = room * sizeof *sealed->list;
    qsort(sealed->list, sealed->count, sizeof *sealed->list, compare);
    return TARN_OK;
}

void sealed_end(struct sealed *sealed)
{
    if (sealed->list)
        pages_unmap(sealed->list, sealed->bytes);
}

uint64_t sealed_usable(uint64_t bytes)
{
    uint64_t whole = bytes ? bytes : 1;
    return (whole + TARN_BLOCK_UNIT - 1) & ~(uint64_t)(TARN_BLOCK_UNIT - 1);
}

bool sealed_lies_in(const struct keep_piece *piece, const struct layout_block *block)
{
    return piece && block->offset >= piece->offset && block->offset % TARN_BLOCK_UNIT == 0 &&
           block->offset - piece->offset < piece->size && block->name[0] &&
           block->bytes <= piece->size &&
           sealed_usable(block->bytes) <= piece->size - (block->offset - piece->offset);
}

/* The list of the seals whose names have the same hash (FNV-1a). */
static struct seal **list_of(const struct keep *keep, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *letter = name; *letter; letter++)
        hash = (hash ^ (unsigned char)*letter) * 0x100000001b3u;
    return &keep->names[(hash ^ hash >> 32) % LAYOUT_BLOCKS];
}

struct seal *seal_named_locked(const struct keep *keep, const char *name)
{
    struct seal *seal = *list_of(keep, name);
    while (seal && strcmp(seal->name, name) != 0)
        seal = seal->next;
    return seal;
}

struct seal *seal_at_locked(const struct keep *keep, uint64_t offset)
{
    struct tree_node *node = tree_find_first(&keep->seals, is_from, offset);
    return node && SEAL_OF(node)->offset == offset ? SEAL_OF(node) : NULL;
}

void seal_enter_locked(struct keep *keep, struct seal *seal, const struct layout_block *block,
                       size_t place)
{
    seal->offset = block->offset;
    seal->bytes = block->bytes;
    seal->place = place;
    seal->number = layout_number(place, block);
    memcpy(seal->name, block->name, sizeof seal->name);
    memcpy(seal->data, block->data, sizeof seal->data);
    keep->taken[place / 64] |= UINT64_C(1) << place % 64;
    tree_insert(&keep->seals, &seal->by_offset);
    struct seal **list = list_of(keep, seal->name);
    seal->next = *list;
    *list = seal;
    keep->seal_count++;
}

struct seal *seal_forget_locked(struct keep *keep, struct seal *seal)
{
    struct seal **list = list_of(keep, seal->name);
    while (*list != seal)
        list = &(*list)->next;
    *list = seal->next;
    keep->taken[seal->place / 64] &= ~(UINT64_C(1) << seal->place % 64);
    tree_remove(&keep->seals, &seal->by_offset);
    keep->seal_count--;
    return seal;
}

void seal_find_locked(const struct keep *keep, const char *name, tarn_sealed_block *found)
{
    const struct seal *seal = seal_named_locked(keep, name);
    if (!seal || (keep->reads && !layout_has(keep->layout, seal->place, seal->number)))
        return;
    found->pointer = (void *)(keep->base + seal->offset);
    found->bytes = seal->bytes;
    found->seal = seal->number;
    memcpy(found->data, seal->data, sizeof found->data);
}
