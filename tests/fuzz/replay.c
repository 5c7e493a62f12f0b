/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Feeds a fuzz target the inputs that are stored for it, so that what fuzzing once found stays
 * found in every build, with any compiler. The arguments are files or folders; the empty input is
 * always tried first. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1); /* exact, so that a sanitizer sees the byte after the
                                                end */
    if (!file || !data || fread(data, 1, size, file) != size) {
        fprintf(stderr, "%s: cannot be read: %s\n", path, strerror(errno));
        free(data);
        if (file)
            fclose(file);
        return 1;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 0;
}

static int replay(const char *path, int *count)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return errno == ENOENT ? 0 : 1; /* a target with no corpus yet */
    if (S_ISREG(info.st_mode)) {
        ++*count;
        return replay_file(path, (size_t)info.st_size);
    }
    DIR *folder = opendir(path);
    if (!folder)
        return 1;
    int failed = 0;
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        char inner[4096];
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name) < (int)sizeof(inner))
            failed |= replay(inner, count);
    }
    closedir(folder);
    return failed;
}

int main(int argc, char **argv)
{
    static const uint8_t nothing[1];
    int count = 1;
    int failed = 0;
    LLVMFuzzerTestOneInput(nothing, 0);
    for (int i = 1; i < argc; i++)
        failed |= replay(argv[i], &count);
    printf("%d inputs\n", count);
    return failed;
}
