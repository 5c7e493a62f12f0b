/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What compute-sanitizer says of work on tarn's blocks, which it learns of by NVTX: this program
 * runs itself under it, once for work without a mistake and once for each kind of mistake, and
 * reads the report. Skipped where there is no compute-sanitizer. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 100
#define BLOCKS 20

/* The work ------------------------------------------------------------------------------------- */

/* Blocks of many sizes, freed while the work on them is queued still. */
static bool good_use(tarn_stream stream)
{
    uint64_t random = 1;
    for (int round = 0; round < ROUNDS; round++) {
        void *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            size_t size = 4 * (gpu_random(&random) % (i % 4 ? 10000 : 1000000) + 1);
            if (!OK("nvtx", tarn_alloc_on(stream, size, &blocks[i])) ||
                !gpu_fill(stream, blocks[i], size, (uint32_t)i, i % 10 ? 0 : 20000))
                return false;
        }
        for (int i = 0; i < BLOCKS; i++)
            if (!OK("nvtx", tarn_free(blocks[i])))
                return false;
    }
    return OK("nvtx", tarn_stream_synchronize(stream));
}

/* What runs under the tool. The mistakes are the last thing that happens: the device is lost by
 * them. */
static int work(const char *what)
{
    tarn_stream stream = 0;
    tarn_tag tag = 0;
    void *small = NULL, *large = NULL;
    int status = gpu_start();
    if (status)
        return status;
    if (!OK("nvtx", tarn_stream_lease(0, 0, &stream)) || !good_use(stream) ||
        !OK("nvtx", tarn_tag_intern("named", &tag)))
        return GPU_FAILED;
    tarn_alloc_options options = {
        .size = sizeof options, .device = 0, .stream = stream, .tag = tag};
    if (!OK("nvtx", tarn_alloc(&options, 1000, &small)) ||
        !OK("nvtx", tarn_alloc(&options, 5000000, &large)))
        return GPU_FAILED;
    if (strcmp(what, "behind") == 0)
        (void)gpu_fill(stream, small, 1004, 1, 0);
    if (strcmp(what, "far") == 0)
        (void)gpu_fill(stream, (char *)large + 4999996, 8, 1, 0);
    if (strcmp(what, "freed") == 0 && OK("nvtx", tarn_free(small)))
        (void)gpu_fill(stream, small, 4, 1, 0);
    (void)tarn_stream_synchronize(stream);
    return 0; /* blocks are left: the tool names them */
}

/* The reports ---------------------------------------------------------------------------------- */

static const char *find_tool(void)
{
    static const char *const places[] = {"/usr/local/cuda/bin/compute-sanitizer",
                                         "/opt/cuda/bin/compute-sanitizer",
                                         "/usr/bin/compute-sanitizer"};
    for (size_t i = 0; i < COUNT(places); i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    return NULL;
}

/* Runs this program under the tool; what it printed, cut to the room. */
static bool run_under(const char *tool, const char *self, const char *what, char *text, size_t size)
{
    char command[4096];
    snprintf(command, sizeof command, "'%s' --nvtx=yes --show-backtrace=no %s '%s' %s 2>&1", tool,
             strcmp(what, "leaks") == 0 ? "--leak-check=full" : "", self, what);
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return false;
    size_t length = fread(text, 1, size - 1, pipe);
    text[length] = '\0';
    while (fgetc(pipe) != EOF)
        ;
    (void)pclose(pipe);
    return true;
}

static void check(const char *tool, const char *self, const char *name, const char *what,
                  const char *wanted)
{
    static char text[1 << 16];
    if (!run_under(tool, self, what, text, sizeof text)) {
        gpu_say(GPU_FAIL, name, "%s could not be run", tool);
        return;
    }
    const char *found = strstr(text, wanted);
    text[strcspn(text, "\n")] = '\0';
    gpu_say(found ? GPU_PASS : GPU_FAIL, name, "the tool %s \"%s\"",
            found ? "says" : "does not say", wanted);
}

int main(int argc, char **argv)
{
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (argc > 1)
        return work(argv[1]);
    int status = gpu_start();
    const char *tool = find_tool();
    if (status)
        return status;
    if (!tool || !gpu_has_kernels || length <= 0) {
        gpu_say(GPU_SKIP, "nvtx", tool ? "there are no kernels" : "there is no compute-sanitizer");
        return gpu_end();
    }
    self[length] = '\0';
    check(tool, self, "nvtx: work without a mistake", "nothing", "ERROR SUMMARY: 0 errors");
    check(tool, self, "nvtx: a write behind a small block", "behind",
          "after the nearest allocation at ");
    check(tool, self, "nvtx: a write behind a large block", "far", "of size 5,000,000 bytes");
    check(tool, self, "nvtx: a write to a freed block", "freed", "Invalid __global__ write");
    check(tool, self, "nvtx: blocks have names", "leaks", "called named");
    (void)OK("nvtx", tarn_shutdown());
    return gpu_end();
}
