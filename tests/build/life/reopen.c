/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The library opened, used and closed again and again, on several threads: nothing crashes, and
 * nothing grows.
 *
 * reopen LIBRARY ROUNDS */
#include "life.h"

#include <dirent.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4 };

static const char *path;

static void *use(void *argument)
{
    struct calls tarn;
    void *blocks[50];
    tarn_stream stream = 0;
    void *library = open_library(path, (argument ? RTLD_LAZY : RTLD_NOW) | RTLD_LOCAL);
    calls_find(library, &tarn);
    NEED(tarn.tarn_stream_lease(0, 0, &stream) == TARN_OK);
    for (size_t i = 0; i < 50; i++)
        NEED((blocks[i] = tarn.tarn_malloc((i + 1) * 1000)));
    for (size_t i = 0; i < 50; i++)
        NEED(tarn.tarn_free(blocks[i]) == TARN_OK);
    NEED(tarn.tarn_stream_return(stream) == TARN_OK);
    NEED(dlclose(library) == 0);
    return NULL; /* the thread's end is the library's to see, closed or not */
}

static void round_of_threads(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        NEED(pthread_create(&threads[i], NULL, use, i % 2 ? &path : NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        NEED(pthread_join(threads[i], NULL) == 0);
}

struct sizes {
    long files, mappings, keys, kib;
};

static long lines_of(const char *file)
{
    FILE *stream = fopen(file, "r");
    long lines = 0;
    NEED(stream);
    for (int c; (c = fgetc(stream)) != EOF;)
        lines += c == '\n';
    fclose(stream);
    return lines;
}

static struct sizes measure(void)
{
    struct sizes sizes = {.mappings = lines_of("/proc/self/maps")};
    DIR *folder = opendir("/proc/self/fd");
    NEED(folder);
    while (readdir(folder))
        sizes.files++;
    closedir(folder);
    static pthread_key_t keys[2048];
    while (sizes.keys < 2048 && pthread_key_create(&keys[sizes.keys], NULL) == 0)
        sizes.keys++;
    for (long i = 0; i < sizes.keys; i++)
        pthread_key_delete(keys[i]);
    char line[256];
    FILE *stream = fopen("/proc/self/status", "r");
    NEED(stream);
    while (fgets(line, sizeof line, stream))
        (void)sscanf(line, "VmData: %ld", &sizes.kib);
    fclose(stream);
    return sizes;
}

int main(int count, char **arguments)
{
    NEED(count == 3);
    path = arguments[1];
    for (int i = 0; i < 50; i++)
        round_of_threads();
    struct sizes before = measure();
    for (int i = 0; i < atoi(arguments[2]) / THREADS; i++)
        round_of_threads();
    struct sizes after = measure();
    printf("files %ld %ld, mappings %ld %ld, keys left %ld %ld, KiB %ld %ld\n", before.files,
           after.files, before.mappings, after.mappings, before.keys, after.keys, before.kib,
           after.kib);
    NEED(after.files == before.files && after.keys == before.keys);
    NEED(after.mappings < before.mappings + 20 && after.kib < before.kib + 2048);

    /* Closed as often as it was opened, it is there still. */
    NEED(dlopen(path, RTLD_NOLOAD | RTLD_NOW));
    return 0;
}
