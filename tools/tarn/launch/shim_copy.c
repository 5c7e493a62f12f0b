/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The shim is an ELF file of the machine's own kind that needs a library whose name is a
 * placeholder. Of the driver's file only the table of dynamic symbols is read. Offsets in both are
 * checked before they are used: neither file is trusted to be whole. */
#include "launch/shim_copy.h"

#include "base/file.h"

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
#define PLACEHOLDER_NODE "run_version_node_"

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
    if (header->e_shentsize != sizeof(ElfW(Shdr)) || index >= header->e_shnum ||
        header->e_shoff % 8)
        return NULL;
    uint64_t offset = header->e_shoff + index * sizeof(ElfW(Shdr));
    return lies_within(image, offset, sizeof(ElfW(Shdr)))
               ? (const ElfW(Shdr) *)(image->bytes + offset)
               : NULL;
}

/* The section with the names that `section` uses. NULL: one of the two does not lie in the image,
 * or the names do not end with a 0. */
static const ElfW(Shdr) * names_of(const struct image *image, const ElfW(Shdr) * section)
{
    const ElfW(Shdr) *names = section_at(image, section->sh_link);
    if (!names || !names->sh_size || section->sh_offset % 8 ||
        !lies_within(image, section->sh_offset, section->sh_size) ||
        !lies_within(image, names->sh_offset, names->sh_size) ||
        image->bytes[names->sh_offset + names->sh_size - 1])
        return NULL;
    return names;
}

static bool symbols_find(const struct image *image, struct symbols *symbols)
{
    if (image->size < sizeof(ElfW(Ehdr)) || memcmp(image->bytes, ELFMAG, SELFMAG) != 0)
        return false;
    const ElfW(Shdr) * section;
    for (size_t i = 0; (section = section_at(image, i)); i++) {
        if (section->sh_type != SHT_DYNSYM)
            continue;
        const ElfW(Shdr) *names = names_of(image, section);
        if (!names)
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
        if (symbols->list[i].st_shndx != SHN_UNDEF &&
            strcmp(name_of(symbols, &symbols->list[i]), name) == 0)
            return true;
    return false;
}

/* The loader passes over a symbol that is not defined. Calls within the shim do not go by its
 * symbols. */
static void hide_what_is_missing(const struct symbols *ours, const struct symbols *theirs,
                                 const char *prefix)
{
    for (size_t i = 0; i < ours->count; i++) {
        const char *name = name_of(ours, &ours->list[i]);
        if (strncmp(name, prefix, strlen(prefix)) == 0 && !has(theirs, name)) {
            ours->list[i].st_shndx = SHN_UNDEF;
            ours->list[i].st_value = 0;
        }
    }
}

/* Versions ------------------------------------------------------------------------------------- */

/* The nodes of versions that an image defines, and their names. */
struct versions {
    unsigned char *first;
    size_t size; /* of their section */
    char *names;
    size_t names_size; /* the last byte is 0 */
};

static bool versions_find(const struct image *image, struct versions *versions)
{
    const ElfW(Shdr) * section;
    for (size_t i = 0; (section = section_at(image, i)); i++) {
        if (section->sh_type != SHT_GNU_verdef)
            continue;
        const ElfW(Shdr) *names = names_of(image, section);
        if (!names)
            return false;
        *versions = (struct versions){image->bytes + section->sh_offset, section->sh_size,
                                      (char *)image->bytes + names->sh_offset, names->sh_size};
        return true;
    }
    return false;
}

/* A node at an offset, and its name; NULL where there is none, or it is not whole. */
static ElfW(Verdef) * version_at(const struct versions *versions, size_t offset, char **name)
{
    if (offset % 4 || offset + sizeof(ElfW(Verdef)) > versions->size)
        return NULL;
    ElfW(Verdef) *node = (ElfW(Verdef) *)(void *)(versions->first + offset);
    size_t at = offset + node->vd_aux;
    if (at % 4 || at + sizeof(ElfW(Verdaux)) > versions->size)
        return NULL;
    const ElfW(Verdaux) *aux = (const ElfW(Verdaux) *)(const void *)(versions->first + at);
    if (aux->vda_name >= versions->names_size)
        return NULL;
    *name = versions->names + aux->vda_name;
    return node;
}

/* Gives the shim's version nodes, whose names are placeholders, the names of the driver's nodes. So
 * a program that asks for a symbol by its version finds it in the shim. False: the driver has too
 * many nodes, or a name is too long. */
static bool name_versions(const struct image *ours, const struct image *theirs)
{
    struct versions mine, wanted;
    size_t own = 0;
    if (!versions_find(ours, &mine) || !versions_find(theirs, &wanted))
        return true; /* nobody asks for versions */
    for (size_t at = 0;;) {
        char *name, *place;
        const ElfW(Verdef) *node = version_at(&wanted, at, &name);
        if (!node)
            return false;
        if (!(node->vd_flags & VER_FLG_BASE)) {
            ElfW(Verdef) *free_node = version_at(&mine, own, &place);
            while (free_node &&
                   strncmp(place, PLACEHOLDER_NODE, sizeof PLACEHOLDER_NODE - 1) != 0 &&
                   free_node->vd_next)
                free_node = version_at(&mine, own += free_node->vd_next, &place);
            if (!free_node || strncmp(place, PLACEHOLDER_NODE, sizeof PLACEHOLDER_NODE - 1) != 0 ||
                strlen(name) > strlen(place))
                return false;
            free_node->vd_hash = node->vd_hash;
            memcpy(place, name, strlen(name) + 1);
        }
        if (!node->vd_next)
            return true;
        at += node->vd_next;
    }
}

/* The shim for HIP has one digit of its name open. */
static void name_major(const struct image *shim, const char *major)
{
    static const char name[] = "libamdhip64.so.0";
    char *place = memmem(shim->bytes, shim->size, name, sizeof name);
    if (place && major)
        place[sizeof name - 2] = major[0];
}

/* The path is spelled as no program spells it: where an audit library has given the shim in place
 * of the driver, the loader knows the shim by the driver's path, and would take the shim for what
 * the shim needs. */
static bool write_path(const struct image *shim, const char *driver)
{
    char *place = memmem(shim->bytes, shim->size, PLACEHOLDER, sizeof PLACEHOLDER - 1);
    size_t length = strlen(driver) + 2;
    if (!place || driver[0] != '/' || length > SHIM_PATH_MOST ||
        !lies_within(shim, (uint64_t)((unsigned char *)place - shim->bytes), length + 1) ||
        strnlen(place, SHIM_PATH_MOST) < length)
        return false;
    place[0] = '/';
    place[1] = '.';
    memcpy(place + 2, driver, length - 1);
    return true;
}

static bool write_file(const struct image *image, const char *to)
{
    int file = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    bool done = file >= 0 && file_write(file, image->bytes, image->size) && fchmod(file, 0755) == 0;
    return (file < 0 || close(file) == 0) && done;
}

bool shim_copy(const char *shim, const struct shim_kind *kind, const char *driver, const char *to,
               char *why, size_t why_size)
{
    struct image ours = {.bytes = MAP_FAILED}, theirs = {.bytes = MAP_FAILED};
    struct symbols our_symbols, their_symbols;
    bool done = false;
    if (!image_open(&ours, shim) || !image_open(&theirs, driver))
        snprintf(why, why_size, "%s: %s", ours.bytes == MAP_FAILED ? shim : driver,
                 strerror(errno));
    else if (!symbols_find(&ours, &our_symbols) || !symbols_find(&theirs, &their_symbols))
        snprintf(why, why_size, "the symbols of %s and %s cannot be read", shim, driver);
    else if (!write_path(&ours, driver))
        snprintf(why, why_size, "the path of the driver is longer than %d bytes: %s",
                 SHIM_PATH_MOST, driver);
    else {
        hide_what_is_missing(&our_symbols, &their_symbols, kind->prefix);
        name_major(&ours, kind->major);
        done = name_versions(&ours, &theirs);
        if (!done)
            snprintf(why, why_size, "the versions of the symbols of %s cannot be given to %s",
                     driver, shim);
        else {
            done = write_file(&ours, to);
            if (!done)
                snprintf(why, why_size, "%s: %s", to, strerror(errno));
        }
    }
    image_close(&ours);
    image_close(&theirs);
    return done;
}
