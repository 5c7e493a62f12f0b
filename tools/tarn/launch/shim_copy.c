/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The shim is an ELF file of the machine's own kind that needs a library whose name is a placeholder. Of the driver's file only the table
 * of dynamic symbols is read. Offsets in both are checked before they are used: neither file is trusted to be whole. */
#include "launch/shim_copy.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACEHOLDER "/tarn-run-driver/"

struct image {
    unsigned char *bytes;
    size_t size;
};

/* The dynamic symbols of an image and their names. */
struct symbols {
    ElfW(Sym) * list;
    size_t count;
    const char *names;
    size_t names_size; /* the last byte is 0 */
};

static bool image_open(struct image *image, const char *path)
{
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    image->bytes = MAP_FAILED;
    if (file >= 0 && fstat(file, &about) == 0 && about.st_size > 0) {
        image->size = (size_t)about.st_size;
        image->bytes = mmap(NULL, image->size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    }
    if (file >= 0)
        close(file);
    return image->bytes != MAP_FAILED;
}

static void image_close(struct image *image)
{
    if (image->bytes != MAP_FAILED)
        munmap(image->bytes, image->size);
}

static bool lies_within(const struct image *image, uint64_t offset, uint64_t size)
{
    return offset <= image->size && size <= image->size - offset;
}

static const ElfW(Shdr) * section_at(const struct image *image, size_t index)
{
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)image->bytes;
    if (header->e_shentsize != sizeof(ElfW(Shdr)) || index >= header->e_shnum || header->e_shoff % 8)
        return NULL;
    uint64_t offset = header->e_shoff + index * sizeof(ElfW(Shdr));
    return lies_within(image, offset, sizeof(ElfW(Shdr))) ? (const ElfW(Shdr) *)(image->bytes + offset) : NULL;
}

static bool symbols_find(const struct image *image, struct symbols *symbols)
{
    if (image->size < sizeof(ElfW(Ehdr)) || memcmp(image->bytes, ELFMAG, SELFMAG) != 0)
        return false;
    const ElfW(Shdr) * section;
    for (size_t i = 0; (section = section_at(image, i)); i++) {
        if (section->sh_type != SHT_DYNSYM)
            continue;
        const ElfW(Shdr) *names = section_at(image, section->sh_link);
        if (!names || !names->sh_size || section->sh_offset % 8 ||
            !lies_within(image, section->sh_offset, section->sh_size) ||
            !lies_within(image, names->sh_offset, names->sh_size) ||
            image->bytes[names->sh_offset + names->sh_size - 1])
            return false;
        *symbols = (struct symbols){
            .list = (ElfW(Sym) *)(image->bytes + section->sh_offset),
            .count = section->sh_size / sizeof(ElfW(Sym)),
            .names = (const char *)image->bytes + names->sh_offset,
            .names_size = names->sh_size,
        };
        return true;
    }
    return false;
}

static const char *name_of(const struct symbols *symbols, const ElfW(Sym) * symbol)
{
    return symbol->st_name < symbols->names_size ? symbols->names + symbol->st_name : "";
}

static bool has(const struct symbols *symbols, const char *name)
{
    for (size_t i = 0; i < symbols->count; i++)
        if (symbols->list[i].st_shndx != SHN_UNDEF && strcmp(name_of(symbols, &symbols->list[i]), name) == 0)
            return true;
    return false;
}

/* The loader passes over a symbol that is not defined. Calls within the shim do not go by its symbols. */
static void hide_what_is_missing(const struct symbols *ours, const struct symbols *theirs)
{
    for (size_t i = 0; i < ours->count; i++) {
        const char *name = name_of(ours, &ours->list[i]);
        if (strncmp(name, "cu", 2) == 0 && !has(theirs, name)) {
            ours->list[i].st_shndx = SHN_UNDEF;
            ours->list[i].st_value = 0;
        }
    }
}

static bool write_path(const struct image *shim, const char *driver)
{
    char *place = memmem(shim->bytes, shim->size, PLACEHOLDER, sizeof PLACEHOLDER - 1);
    size_t length = strlen(driver);
    if (!place || length > SHIM_PATH_MOST ||
        !lies_within(shim, (uint64_t)((unsigned char *)place - shim->bytes), length + 1) ||
        strnlen(place, SHIM_PATH_MOST) < length)
        return false;
    memcpy(place, driver, length + 1);
    return true;
}

static bool write_file(const struct image *image, const char *to)
{
    int file = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    size_t written = 0;
    while (file >= 0 && written < image->size) {
        ssize_t step = write(file, image->bytes + written, image->size - written);
        if (step < 0 && errno != EINTR)
            break;
        written += step > 0 ? (size_t)step : 0;
    }
    bool done = file >= 0 && written == image->size;
    return (file < 0 || close(file) == 0) && done;
}

bool shim_copy(const char *shim, const char *driver, const char *to, char *why, size_t why_size)
{
    struct image ours = {.bytes = MAP_FAILED}, theirs = {.bytes = MAP_FAILED};
    struct symbols our_symbols, their_symbols;
    bool done = false;
    if (!image_open(&ours, shim) || !image_open(&theirs, driver))
        snprintf(why, why_size, "%s: %s", ours.bytes == MAP_FAILED ? shim : driver, strerror(errno));
    else if (!symbols_find(&ours, &our_symbols) || !symbols_find(&theirs, &their_symbols))
        snprintf(why, why_size, "the symbols of %s and %s cannot be read", shim, driver);
    else if (!write_path(&ours, driver))
        snprintf(why, why_size, "the path of the driver is longer than %d bytes: %s", SHIM_PATH_MOST, driver);
    else {
        hide_what_is_missing(&our_symbols, &their_symbols);
        done = write_file(&ours, to);
        if (!done)
            snprintf(why, why_size, "%s: %s", to, strerror(errno));
    }
    image_close(&ours);
    image_close(&theirs);
    return done;
}
