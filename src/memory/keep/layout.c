/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "memory/keep/layout.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* "1tlayout" as a machine of the same byte order has it. */
#define MAGIC UINT64_C(0x74756f79616c7431)

static struct layout *map(int file, bool writes)
{
    int access = writes ? PROT_READ | PROT_WRITE : PROT_READ;
    void *memory = mmap(NULL, sizeof(struct layout), access, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* The file cannot shrink under a mapping. */
int layout_create(void)
{
    int file = file_renumber(memfd_create("tarn-keep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    struct layout *layout = NULL;
    if (file >= 0 && ftruncate(file, sizeof(struct layout)) == 0 &&
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
        layout = map(file, true);
    if (!layout) {
        int code = errno;
        if (file >= 0)
            close(file);
        errno = code;
        return -1;
    }
    layout->magic = MAGIC;
    layout->version = KEEP_VERSION;
    layout_unmap(layout);
    return file;
}

struct layout *layout_map(int file, bool writes)
{
    struct stat about;
    int seals = fcntl(file, F_GET_SEALS);
    if (fstat(file, &about) != 0)
        return NULL;
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || (size_t)about.st_size != sizeof(struct layout)) {
        errno = EPROTO;
        return NULL;
    }
    struct layout *layout = map(file, writes);
    if (layout && (layout->magic != MAGIC || layout->version != KEEP_VERSION)) {
        layout_unmap(layout);
        errno = EPROTO;
        return NULL;
    }
    return layout;
}

void layout_unmap(struct layout *layout)
{
    (void)munmap(layout, sizeof *layout);
}

size_t layout_used(const struct layout *layout)
{
    uint64_t used = atomic_load_explicit(&layout->used, memory_order_acquire);
    return used < LAYOUT_BLOCKS ? (size_t)used : LAYOUT_BLOCKS;
}

bool layout_is_sealed(const struct layout_block *block)
{
    return atomic_load_explicit(&block->state, memory_order_acquire) == LAYOUT_SEALED;
}

/* Copies a sealed block. False: the block is not sealed, or changed during the copy. A writer
 * stores a block's number before its contents. So a copy that contains a part of a later block also
 * sees the later number. */
bool layout_read(const struct layout_block *block, struct layout_block *copy)
{
    uint32_t number = atomic_load_explicit(&block->number, memory_order_acquire);
    if (!layout_is_sealed(block))
        return false;
    copy->offset = block->offset;
    copy->bytes = block->bytes;
    memcpy(copy->name, block->name, sizeof copy->name);
    memcpy(copy->data, block->data, sizeof copy->data);
    copy->name[TARN_KEEP_NAME_BYTES - 1] = 0;
    atomic_init(&copy->number, number);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&block->number, memory_order_relaxed) == number;
}

uint64_t layout_number(size_t place, const struct layout_block *block)
{
    return (uint64_t)place << 32 | atomic_load_explicit(&block->number, memory_order_relaxed);
}

bool layout_has(const struct layout *layout, size_t place, uint64_t number)
{
    const struct layout_block *block = &layout->blocks[place];
    return place < layout_used(layout) && layout_is_sealed(block) &&
           layout_number(place, block) == number;
}

size_t layout_count(const struct layout *layout)
{
    size_t count = 0;
    for (size_t i = 0; i < layout_used(layout); i++)
        count += layout_is_sealed(&layout->blocks[i]);
    return count;
}

void layout_seal(struct layout *layout, size_t place, const struct layout_block *block)
{
    struct layout_block *entry = &layout->blocks[place];
    uint32_t number = atomic_load_explicit(&entry->number, memory_order_relaxed) + 1;
    atomic_store_explicit(&entry->number, number, memory_order_release);
    atomic_thread_fence(memory_order_release);
    entry->offset = block->offset;
    entry->bytes = block->bytes;
    memcpy(entry->name, block->name, sizeof entry->name);
    memcpy(entry->data, block->data, sizeof entry->data);
    atomic_store_explicit(&entry->state, LAYOUT_SEALED, memory_order_release);
    if (place >= layout_used(layout))
        atomic_store_explicit(&layout->used, place + 1, memory_order_release);
    layout_changed(layout, false);
}

void layout_unseal(struct layout *layout, size_t place)
{
    atomic_store_explicit(&layout->blocks[place].state, LAYOUT_FREE, memory_order_release);
    layout_changed(layout, false);
}

void layout_numbers(struct layout *layout, uint64_t number)
{
    if (atomic_load_explicit(&layout->segments, memory_order_relaxed) < number)
        atomic_store_explicit(&layout->segments, number, memory_order_release);
}

void layout_changed(struct layout *layout, bool over)
{
    if (over)
        atomic_store_explicit(&layout->used, 0, memory_order_release);
    atomic_fetch_add_explicit(&layout->changes, 1, memory_order_release);
}
