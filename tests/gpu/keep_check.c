/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Memory that outlives its process, on hardware: this program runs itself again as a process that
 * fills a pool and is killed while a kernel of it runs. Then it adopts the pool, checks every byte
 * of what was sealed, and says how long that took. TARN names the program `tarn`, whose `keep` is
 * the owner; GPU_KEEP_GIB is how much is kept (8). */
#include "gpu.h"
#include "side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIB ((size_t)1 << 30)
#define MOST 64 /* blocks */
#define KILLS 10
#define LATE 100000000 /* ns: the kernel that a kill meets */

static size_t block_bytes = GIB;
static unsigned blocks = 8;
static char path[100];

static tarn_keep_options options_of(void)
{
    return (tarn_keep_options){.size = sizeof(tarn_keep_options),
                               .socket = path,
                               .segment = block_bytes,
                               .wait_ms = 20000};
}

static void name_of(unsigned i, char name[32])
{
    snprintf(name, 32, "layer.%u", i);
}

/* ---- The process that is killed ---- */

static bool seal_all(const char *name, tarn_pool *pool, tarn_stream stream, void **pointers)
{
    tarn_event *event = NULL;
    bool well = OK(name, tarn_event_create(0, &event));
    for (unsigned i = 0; well && i < blocks; i++) {
        char block[32];
        name_of(i, block);
        well = OK(name, tarn_pool_alloc(pool, stream, block_bytes, &pointers[i])) &&
               gpu_write(name, stream, pointers[i], block_bytes, 100 + i) &&
               OK(name, tarn_event_record(event, stream)) &&
               OK(name, tarn_pool_block_seal(pointers[i], block, NULL, event));
    }
    return well && OK(name, tarn_event_destroy(event));
}

/* Fills the pool the first time; always has a kernel write what is not sealed, when it says so. */
static bool live(int socket, tarn_stream stream)
{
    const char *name = "keep: a process";
    tarn_keep_options options = options_of();
    options.stream = stream; /* whose free memory this generation's loose block is */
    tarn_kept kept = {.size = sizeof kept};
    tarn_pool *pool = NULL;
    void *pointers[MOST] = {NULL}, *loose = NULL;
    bool well = OK(name, tarn_pool_keep("weights", &options, &pool, &kept));
    if (well && !kept.adopted)
        well = seal_all(name, pool, stream, pointers);
    well = well && OK(name, tarn_pool_alloc(pool, stream, block_bytes, &loose)) &&
           gpu_fill(stream, loose, block_bytes, 7, LATE);
    return send(socket, pointers, sizeof pointers, MSG_NOSIGNAL) == (ssize_t)sizeof pointers &&
           say(socket, well ? 'w' : 'x') && hear(socket, 'e');
}

/* ---- This side ---- */

static pid_t start_owner(void)
{
    const char *program = getenv("TARN");
    int ends[2];
    char line[200] = "";
    if (!program || access(program, X_OK) || pipe(ends))
        return -1;
    pid_t owner = fork();
    if (owner == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl(program, "tarn", "keep", "--socket", path, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    bool well = owner > 0 && read(ends[0], line, sizeof line - 1) > 0 && strstr(line, "listening");
    close(ends[0]);
    return well ? owner : -1;
}

static bool kill_one(const char *program, void *pointers[MOST])
{
    int socket = -1;
    void *told[MOST];
    pid_t process = side_start(program, "live", SOCK_STREAM, &socket);
    bool well = process > 0 &&
                recv(socket, told, sizeof told, MSG_WAITALL) == (ssize_t)sizeof told &&
                hear(socket, 'w');
    if (well && told[0])
        memcpy(pointers, told, sizeof told);
    return side_end(process, SIGKILL) && close(socket) == 0 && well;
}

static bool check_blocks(const char *name, tarn_pool *pool, tarn_stream stream,
                         void *const pointers[MOST], bool moved)
{
    bool well = true;
    for (unsigned i = 0; well && i < blocks; i++) {
        char block[32];
        tarn_sealed_block found = {.size = sizeof found};
        name_of(i, block);
        well = OK(name, tarn_pool_block_find(pool, block, &found)) && found.bytes == block_bytes &&
               (moved || found.pointer == pointers[i]) &&
               gpu_holds(name, stream, &found.pointer, 1, block_bytes, 100 + i);
    }
    return well;
}

static void adopt(const char *program, tarn_stream stream)
{
    const char *name = "keep: adopted after kills";
    tarn_keep_options options = options_of();
    tarn_kept kept = {.size = sizeof kept};
    tarn_pool *pool = NULL;
    void *pointers[MOST] = {NULL};
    char text[200];
    bool well = true;
    for (int i = 0; well && i < KILLS; i++)
        well = kill_one(program, pointers);
    uint64_t began = gpu_ns();
    well = well && OK(name, tarn_pool_keep("weights", &options, &pool, &kept));
    double took = (double)(gpu_ns() - began) / 1e6;
    well = well && kept.adopted && kept.blocks == blocks &&
           check_blocks(name, pool, stream, pointers, kept.moved);
    snprintf(text, sizeof text,
             "%zu MiB of %u blocks after %d kills, every word right, %s, adopted in %.2f ms",
             kept.bytes >> 20, blocks, KILLS,
             kept.moved ? "at other addresses" : "at the same addresses", took);
    gpu_verdict(well, name, text);
    for (unsigned i = 0; well && i < blocks; i++) {
        char block[32];
        tarn_sealed_block found = {.size = sizeof found};
        name_of(i, block);
        well = OK(name, tarn_pool_block_find(pool, block, &found)) &&
               OK(name, tarn_free(found.pointer));
    }
    size_t before = gpu_free_bytes();
    well = well && OK(name, tarn_pool_release(pool)) && OK(name, tarn_device_trim(0, 0));
    size_t after = gpu_free_bytes();
    snprintf(text, sizeof text, "%zu MiB came back with the release", (after - before) >> 20);
    /* The simulated driver counts what this process has created. */
    gpu_verdict(well && (gpu_is_simulated || after - before >= kept.bytes), "keep: the end", text);
}

int main(int argc, char **argv)
{
    const char *wanted = getenv("GPU_KEEP_GIB"), *socket_path = getenv("GPU_KEEP_SOCKET");
    tarn_stream stream = 0;
    snprintf(path, sizeof path, "/tmp/tarn-keep-check-%d", (int)getpid());
    if (socket_path)
        snprintf(path, sizeof path, "%.99s", socket_path);
    setenv("GPU_KEEP_SOCKET", path, 1);
    int status = gpu_start();
    if (status)
        return status;
    if (gpu_is_simulated)
        block_bytes = 16 * MIB;
    blocks = wanted ? (unsigned)atoi(wanted) : blocks;
    blocks = blocks < MOST ? blocks : MOST;
    if (!OK("keep", tarn_stream_lease(0, 0, &stream)))
        return gpu_end();
    if (argc == 3)
        return live(atoi(argv[2]), stream) ? 0 : GPU_FAILED;
    pid_t owner = start_owner();
    if (owner < 0) {
        gpu_say(GPU_SKIP, "keep", "no program `tarn`: TARN names none");
        return gpu_end();
    }
    adopt(argv[0], stream);
    gpu_verdict(kill(owner, SIGTERM) == 0 && side_end(owner, 0), "keep: the owner ends",
                "by SIGTERM");
    return gpu_end();
}
