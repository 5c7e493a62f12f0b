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

#define MAGIC \
    UINT64_C(0x74756f79616c7431) /* "1tlayout" as a machine of the same byte order has it */

static struct layout *map(int file)
{
    void *memory = mmap(NULL, sizeof(struct layout), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* The file cannot shrink under a mapping. */
int layout_create(void)
{
    int file = file_renumber(memfd_create("tarn-keep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    struct layout *layout = NULL;
    if (file >= 0 && ftruncate(file, sizeof(struct layout)) == 0 &&
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
        layout = map(file);
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

struct layout *layout_map(int file)
{
    struct stat about;
    int seals = fcntl(file, F_GET_SEALS);
    if (fstat(file, &about) != 0)
        return NULL;
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || (size_t)about.st_size != sizeof(struct layout)) {
        errno = EPROTO;
        return NULL;
    }
    struct layout *layout = map(file);
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
    entry->offset = block->offset;
    entry->bytes = block->bytes;
    memcpy(entry->name, block->name, sizeof entry->name);
    memcpy(entry->data, block->data, sizeof entry->data);
    atomic_store_explicit(&entry->state, LAYOUT_SEALED, memory_order_release);
    if (place >= layout_used(layout))
        atomic_store_explicit(&layout->used, place + 1, memory_order_release);
}

void layout_unseal(struct layout *layout, size_t place)
{
    atomic_store_explicit(&layout->blocks[place].state, LAYOUT_FREE, memory_order_release);
}
