/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A place is found by the hash of the name, and behind it by the next ones in turn. */
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

static uint32_t state_of(const struct layout_block *block)
{
    return atomic_load_explicit(&block->state, memory_order_acquire);
}

/* FNV-1a. */
static uint32_t hash(const char *name)
{
    uint32_t sum = 2166136261u;
    for (; *name; name++)
        sum = (sum ^ (unsigned char)*name) * 16777619u;
    return sum;
}

struct layout_block *layout_find(struct layout *layout, const char *name)
{
    uint32_t first = hash(name);
    for (uint32_t i = 0; i < LAYOUT_BLOCKS; i++) {
        struct layout_block *block = &layout->blocks[(first + i) % LAYOUT_BLOCKS];
        uint32_t state = state_of(block);
        if (state == LAYOUT_EMPTY)
            return NULL;
        if (state == LAYOUT_SEALED && strncmp(block->name, name, sizeof block->name) == 0)
            return block;
    }
    return NULL;
}

struct layout_block *layout_enter(struct layout *layout, const struct layout_block *block)
{
    uint32_t place = hash(block->name) % LAYOUT_BLOCKS;
    while (state_of(&layout->blocks[place]) == LAYOUT_SEALED)
        place = (place + 1) % LAYOUT_BLOCKS;
    struct layout_block *entered = &layout->blocks[place];
    entered->tag = block->tag;
    entered->offset = block->offset;
    entered->bytes = block->bytes;
    memcpy(entered->name, block->name, sizeof entered->name);
    memcpy(entered->data, block->data, sizeof entered->data);
    atomic_store_explicit(&entered->state, LAYOUT_SEALED, memory_order_release);
    return entered;
}

/* Places that were left are empty again where no search needs to pass them. */
void layout_leave(struct layout *layout, struct layout_block *block)
{
    uint32_t place = (uint32_t)(block - layout->blocks);
    atomic_store_explicit(&block->state, LAYOUT_GONE, memory_order_release);
    if (state_of(&layout->blocks[(place + 1) % LAYOUT_BLOCKS]) != LAYOUT_EMPTY)
        return;
    for (; state_of(&layout->blocks[place]) == LAYOUT_GONE;
         place = (place + LAYOUT_BLOCKS - 1) % LAYOUT_BLOCKS)
        atomic_store_explicit(&layout->blocks[place].state, LAYOUT_EMPTY, memory_order_release);
}

size_t layout_count(const struct layout *layout)
{
    size_t count = 0;
    for (uint32_t i = 0; i < LAYOUT_BLOCKS; i++)
        count += state_of(&layout->blocks[i]) == LAYOUT_SEALED;
    return count;
}
