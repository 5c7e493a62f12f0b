/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Finds the file of a library. Owns nothing. A library that was opened and lacks a function stays
 * open: it may have threads by then.
 *
 * Libraries of one toolkit call each other, and two major versions of it in one process do not know
 * each other's handles. So the versions that the process has loaded of a platform decide which
 * versions of other libraries are opened (releases in the rows). */
#include "handle/search.h"
#include "base/variable.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct search {
    const struct library *row;
    /* The toolkit releases that loaded libraries belong to; LIBRARY_ANY_RELEASE: unknown. */
    unsigned releases;
    const char *because; /* the loaded soname that tells */
    struct loaded *loaded;
    struct library_calls *calls;
    char *why;
    size_t size;
};

/* Adds a reason, unless it is there already: several places may lead to one file. */
static __attribute__((format(printf, 2, 3))) void say(const struct search *search,
                                                      const char *format, ...)
{
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!strstr(search->why, text))
        loader_say(search->why, search->size, "%s%s", search->why[0] ? "; " : "", text);
}

/* Releases ------------------------------------------------------------------------------------- */

/* "CUDA 12 or 13". */
static void name_releases(tarn_platform platform, unsigned releases, char *text, size_t size)
{
    const char *before = platform == TARN_PLATFORM_HIP ? "ROCm" : "CUDA";
    text[0] = '\0';
    for (unsigned i = 0; i < 32; i++) {
        if (!(releases & LIBRARY_RELEASE(i)))
            continue;
        loader_say(text, size, "%s %u", before, i);
        before = " or";
    }
}

/* Finds the releases that loaded libraries belong to. If a process has loaded several already, tarn
 * does not prevent that. */
static void look_what_is_loaded(struct search *search)
{
    static const struct library *const rows[] = {
#define ROW(NAME, number, name) &library_##name,
        TARN_LIBRARY_LIST(ROW)
#undef ROW
    };
    unsigned common = ~0u;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && common; i++) {
        for (int j = 0; rows[i]->platform == search->row->platform && j < LIBRARY_SONAMES &&
                        rows[i]->sonames[j];
             j++) {
            unsigned releases = rows[i]->releases[j];
            if (releases == LIBRARY_ANY_RELEASE || !loader_is_loaded(rows[i]->sonames[j]))
                continue;
            if ((common & releases) != common)
                search->because = rows[i]->sonames[j];
            common &= releases;
        }
    }
    search->releases = common == ~0u ? LIBRARY_ANY_RELEASE : common;
}

/* Whether one of the row's sonames may be opened beside what is loaded. If not, adds the reason for
 * `file`. */
static bool fits(const struct search *search, int number, const char *file)
{
    unsigned releases = search->row->releases[number];
    char theirs[64], loaded[64];
    if (releases == LIBRARY_ANY_RELEASE || search->releases == LIBRARY_ANY_RELEASE ||
        (releases & search->releases))
        return true;
    name_releases(search->row->platform, releases, theirs, sizeof theirs);
    name_releases(search->row->platform, search->releases, loaded, sizeof loaded);
    say(search, "%s is of %s, and %s of %s is loaded: not opened", file, theirs, search->because,
        loaded);
    return false;
}

/* Files ---------------------------------------------------------------------------------------- */

/* Looks a symbol up, unless a pointer was given. */
static void resolve(const struct loaded *loaded, const char *symbol, void *function)
{
    void *present;
    memcpy(&present, function, sizeof present);
    if (symbol && loaded->library && !present)
        loader_store(function, loader_symbol(loaded, symbol));
}

static void modes_resolve(const struct library_mode *mode, const struct loaded *loaded,
                          struct mode_calls *calls)
{
    if (mode->is_pointer) {
        resolve(loaded, mode->set, &calls->set_pointer);
        resolve(loaded, mode->get, &calls->get_pointer);
    } else {
        resolve(loaded, mode->set, &calls->set);
        resolve(loaded, mode->get, &calls->get);
    }
}

static bool calls_resolve(const struct search *search, const struct loaded *loaded,
                          struct library_calls *calls)
{
    const struct library *row = search->row;
    if (row->create_takes_number)
        resolve(loaded, row->create, &calls->create_with_number);
    else
        resolve(loaded, row->create, &calls->create);
    resolve(loaded, row->destroy, &calls->destroy);
    resolve(loaded, row->set_stream, &calls->set_stream);
    resolve(loaded, row->get_stream, &calls->get_stream);
    resolve(loaded, row->set_workspace, &calls->set_workspace);
    resolve(loaded, row->status_text, &calls->status_text);
    resolve(loaded, row->version, &calls->version);
    resolve(loaded, row->memory, &calls->memory);
    for (int i = 0; i < LIBRARY_MODES; i++)
        modes_resolve(&row->modes[i], loaded, &calls->modes[i]);

    bool creates =
        row->create_takes_number ? calls->create_with_number != NULL : calls->create != NULL;
    const char *missing = !creates                                ? row->create
                          : !calls->destroy                       ? row->destroy
                          : row->set_stream && !calls->set_stream ? row->set_stream
                                                                  : NULL;
    if (missing)
        say(search, "%s has no symbol %s", loader_path(loaded), missing);
    return !missing;
}

/* Tries one file, by its path or soname. True if it serves. */
static bool try_file(struct search *search, const char *file, const char *soname)
{
    const char *const one[] = {file, NULL};
    struct loaded loaded = {0};
    struct library_calls calls = *search->calls;
    char reason[400] = "";
    if (loader_open(one, &loaded, reason, sizeof reason)) {
        say(search, "%s", reason);
        return false;
    }
    if (!calls_resolve(search, &loaded, &calls))
        return false;
    loaded.soname = soname;
    *search->loaded = loaded;
    *search->calls = calls;
    return true;
}

/* Tries libraries that the process has loaded: tarn must use the one that the program uses. */
static bool find_loaded(struct search *search)
{
    for (int i = 0; i < LIBRARY_SONAMES && search->row->sonames[i]; i++)
        if (loader_is_loaded(search->row->sonames[i]) &&
            try_file(search, search->row->sonames[i], search->row->sonames[i]))
            return true;
    return false;
}

/* Tries the loader's own search. */
static bool find_by_the_loader(struct search *search)
{
    for (int i = 0; i < LIBRARY_SONAMES && search->row->sonames[i]; i++)
        if (fits(search, i, search->row->sonames[i]) &&
            try_file(search, search->row->sonames[i], search->row->sonames[i]))
            return true;
    return false;
}

/* Tries `directory``subdirectory`/soname for each soname; `length` is that of `directory`. A file
 * that does not exist is not reported, since most directories lack most libraries. */
static bool find_in(struct search *search, const char *directory, size_t length,
                    const char *subdirectory)
{
    for (int i = 0; length && i < LIBRARY_SONAMES && search->row->sonames[i]; i++) {
        const char *soname = search->row->sonames[i];
        char path[PATH_MAX];
        int wanted =
            snprintf(path, sizeof path, "%.*s%s/%s", (int)length, directory, subdirectory, soname);
        if (wanted > 0 && (size_t)wanted < sizeof path && access(path, F_OK) == 0 &&
            fits(search, i, path) && try_file(search, path, soname))
            return true;
    }
    return false;
}

static bool find_in_path(struct search *search, const char *path)
{
    while (path && *path) {
        size_t length = strcspn(path, ":");
        if (find_in(search, path, length, ""))
            return true;
        path += length;
        path += *path == ':';
    }
    return false;
}

static bool find_in_toolkit(struct search *search)
{
    static const struct {
        tarn_platform platform;
        const char *variable, *subdirectory;
    } places[] = {
        {TARN_PLATFORM_CUDA, "CUDA_HOME", "/lib64"},
        {TARN_PLATFORM_CUDA, "CUDA_HOME", "/lib"},
        {TARN_PLATFORM_CUDA, "CUDA_PATH", "/lib64"},
        {TARN_PLATFORM_CUDA, "CUDA_PATH", "/lib"},
        {TARN_PLATFORM_HIP, "ROCM_PATH", "/lib"},
        {TARN_PLATFORM_HIP, NULL, "/opt/rocm/lib"},
        {TARN_PLATFORM_CUDA, NULL, "/usr/local/cuda/lib64"},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *directory =
            places[i].variable ? variable_get(places[i].variable) : places[i].subdirectory;
        if (places[i].platform == search->row->platform && directory &&
            find_in(search, directory, strlen(directory),
                    places[i].variable ? places[i].subdirectory : ""))
            return true;
    }
    return false;
}

tarn_status library_search(const struct library *row, struct loaded *loaded,
                           struct library_calls *calls, char *why, size_t size)
{
    struct search search = {.row = row,
                            .releases = LIBRARY_ANY_RELEASE,
                            .loaded = loaded,
                            .calls = calls,
                            .why = why,
                            .size = size};
    why[0] = '\0';
    if (row->platform != TARN_PLATFORM_ANY)
        look_what_is_loaded(&search);
    bool found = find_in_path(&search, variable_get("TARN_LIBRARY_PATH")) || find_loaded(&search) ||
                 find_by_the_loader(&search) || find_in_toolkit(&search);
    return found ? TARN_OK : TARN_ERROR_LIBRARY_NOT_FOUND;
}
