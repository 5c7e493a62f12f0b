/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Plans on a real GPU, for one stream, for two, and for a stream beside one in a private pool. This
 * program runs itself again: one process records the requests of a small program, `tarn plan`
 * places them, and a second process repeats them twice with the plan. There each block must be
 * where the plan has it, no more may be reserved than the plan's arenas take, nothing more in the
 * second round, and what kernels wrote into a block must be in it when it is freed.
 *
 * TARN names the program `tarn`. GPU_PLANS names a folder instead, with plans that another machine
 * made: its plan-<number>.plan are used. */
#include "gpu.h"

#include "memory/settings/plan_file.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STREAMS 2
#define REQUESTS 160 /* of each stream */
#define LIVE 12      /* blocks of each stream at most */
#define STEP ((size_t)512 << 10)
#define STEPS 32 /* the largest block, in steps */
#define ROUNDS 2
#define PIECE ((uint64_t)2 << 20) /* bytes: the least that is reserved */

extern char **environ;

struct block {
    unsigned char *start;
    size_t size;
    unsigned number; /* of its request on its stream */
};

/* A stream of the program. */
struct line {
    tarn_stream stream;
    tarn_pool *pool; /* NULL: the default pool */
    struct block live[LIVE];
    unsigned count;
    unsigned char *starts[ROUNDS][REQUESTS];
};

struct program {
    struct line lines[STREAMS];
    unsigned streams, round;
    uint64_t state;
    struct gpu_slots slots;
    int64_t reserved[ROUNDS]; /* bytes that were ever reserved, after each round */
};

/* A program is named by a number: of its streams, or one more where the second has a pool. */
static const char *name_of(unsigned number)
{
    static const char *const names[] = {"plan: one stream", "plan: two streams",
                                        "plan: a private pool"};
    return names[number - 1];
}

static unsigned streams_of(unsigned number)
{
    return number < STREAMS ? number : STREAMS;
}

static void path_of(char path[static 512], unsigned number, const char *kind)
{
    const char *folder =
        getenv(strcmp(kind, "plan") == 0 && getenv("GPU_PLANS") ? "GPU_PLANS" : "GPU_RESULTS");
    snprintf(path, 512, "%s/plan-%u.%s", folder && *folder ? folder : ".", number, kind);
}

/* ---- The program that is planned ---- */

static int64_t ever_reserved(const char *name)
{
    tarn_stats stats = {.size = sizeof stats};
    return OK(name, tarn_device_stats_get(0, &stats))
               ? stats.reserved_bytes[TARN_STAT_ALL].allocated
               : -1;
}

static uint32_t seed_of(const struct program *program, unsigned line, unsigned number)
{
    return (program->round * STREAMS + line) * REQUESTS + number + 1;
}

/* Looks at a block behind all that its stream has to do, and frees it. */
static bool finish(struct program *program, unsigned line, unsigned index, const char *name)
{
    struct line *self = &program->lines[line];
    struct block block = self->live[index];
    uint32_t seed = seed_of(program, line, block.number);
    self->live[index] = self->live[--self->count];
    return gpu_check(self->stream, block.start, block.size, seed, 0, &program->slots, seed - 1) &&
           OK(name, tarn_free(block.start));
}

static bool request(struct program *program, unsigned line, unsigned number, const char *name)
{
    struct line *self = &program->lines[line];
    void *start = NULL;
    size_t size = STEP * (1 + gpu_random(&program->state) % STEPS);
    uint64_t chance = gpu_random(&program->state);
    if (self->count == LIVE && !finish(program, line, (unsigned)(chance % LIVE), name))
        return false;
    if (!OK(name, self->pool ? tarn_pool_alloc(self->pool, self->stream, size, &start)
                             : tarn_alloc_on(self->stream, size, &start)))
        return false;
    self->live[self->count++] = (struct block){start, size, number};
    self->starts[program->round][number] = start;
    return gpu_fill(self->stream, start, size, seed_of(program, line, number), 0);
}

/* The same requests in each round, whose streams take turns. */
static bool play_round(struct program *program, const char *name)
{
    bool well = true;
    program->state = 88172645463325252u;
    for (unsigned number = 0; well && number < REQUESTS; number++) {
        for (unsigned line = 0; well && line < program->streams; line++)
            well = request(program, line, number, name);
    }
    for (unsigned line = 0; line < program->streams; line++)
        while (well && program->lines[line].count)
            well = finish(program, line, 0, name);
    program->reserved[program->round] = ever_reserved(name);
    return well;
}

static bool contents_are_right(struct program *program, const char *name)
{
    bool well = OK(name, tarn_device_synchronize(0)) &&
                gpu_slots_read(&program->slots, program->lines[0].stream);
    for (size_t i = 0; well && i < program->slots.count; i++) {
        const struct gpu_slot *slot = &program->slots.host[i];
        if (!slot->wrong)
            continue;
        gpu_say(GPU_FAIL, name, "block %zu: %llu wrong words, the first is %llu", i,
                (unsigned long long)slot->wrong, (unsigned long long)slot->first);
        well = false;
    }
    return well;
}

static bool play(struct program *program, unsigned number, unsigned rounds, const char *name)
{
    const unsigned streams = streams_of(number);
    bool well = true;
    *program = (struct program){.streams = streams};
    for (unsigned line = 0; well && line < streams; line++)
        well = OK(name, tarn_stream_lease(0, 0, &program->lines[line].stream));
    if (well && number > STREAMS)
        well = OK(name, tarn_pool_create(NULL, &program->lines[1].pool));
    well = well &&
           gpu_slots_create(&program->slots, program->lines[0].stream, ROUNDS * STREAMS * REQUESTS);
    for (program->round = 0; well && program->round < rounds; program->round++)
        well = play_round(program, name);
    return well && contents_are_right(program, name);
}

/* ---- With the plan ---- */

/* Reads the next arena of a plan that the library has found to be right. */
static bool read_arena(FILE *file, struct plan_header *header,
                       struct plan_request requests[REQUESTS])
{
    return fread(header, sizeof *header, 1, file) == 1 && header->count == REQUESTS &&
           fread(requests, sizeof *requests, REQUESTS, file) == REQUESTS;
}

/* How many blocks of a stream are where the arena has them, if its first one is. */
static unsigned count_placed(const struct line *line, const struct plan_request requests[REQUESTS])
{
    unsigned placed = 0;
    uintptr_t base = (uintptr_t)line->starts[0][0] - requests[0].offset * TARN_BLOCK_UNIT;
    for (unsigned round = 0; round < ROUNDS; round++)
        for (unsigned i = 0; i < REQUESTS; i++)
            placed +=
                (uintptr_t)line->starts[round][i] == base + requests[i].offset * TARN_BLOCK_UNIT;
    return placed;
}

static int follow(unsigned number)
{
    static struct program program;
    const char *name = name_of(number);
    const unsigned streams = streams_of(number);
    char path[512], text[200];
    struct plan_request requests[REQUESTS];
    uint64_t arenas = 0;
    unsigned placed = 0, planned = 0;
    path_of(path, number, "plan");
    if (!play(&program, number, ROUNDS, name))
        return GPU_FAILED;
    FILE *file = fopen(path, "rb");
    for (unsigned line = 0; file && line < streams; line++) {
        struct plan_header header;
        if (!read_arena(file, &header, requests))
            break;
        arenas += header.arena;
        planned += ROUNDS * REQUESTS;
        placed += count_placed(&program.lines[line], requests);
    }
    if (file)
        fclose(file);
    bool well = planned == streams * ROUNDS * REQUESTS && placed == planned &&
                program.reserved[1] == program.reserved[0] &&
                /* One more for what the kernels find */
                program.reserved[0] <= (int64_t)(arenas + (streams + 1) * PIECE);
    snprintf(text, sizeof text,
             "%u of %u blocks where the plan has them, with their contents; %lld MiB reserved in "
             "the first round for "
             "arenas of %llu MiB, "
             "%lld more in the second",
             placed, streams * ROUNDS * REQUESTS, (long long)(program.reserved[0] >> 20),
             (unsigned long long)(arenas >> 20),
             (long long)(program.reserved[1] - program.reserved[0]));
    gpu_say(well ? GPU_PASS : GPU_FAIL, name, "%s", text);
    return well ? 0 : GPU_FAILED;
}

/* ---- The steps ---- */

static int record(unsigned number)
{
    static struct program program;
    const char *name = name_of(number);
    char path[512];
    path_of(path, number, "pickle");
    return OK(name, tarn_trace_start(NULL)) && play(&program, number, 1, name) &&
                   OK(name, tarn_snapshot_write(path, NULL))
               ? 0
               : GPU_FAILED;
}

static bool run(const char *program, char **arguments)
{
    pid_t process = -1;
    int status = 0;
    return posix_spawnp(&process, program, NULL, NULL, arguments, environ) == 0 &&
           waitpid(process, &status, 0) == process && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool run_self(const char *what, unsigned number)
{
    char text[16];
    snprintf(text, sizeof text, "%u", number);
    char *arguments[] = {"gpu_plan", (char *)(uintptr_t)what, text, NULL};
    return run("/proc/self/exe", arguments);
}

/* `tarn plan`, with as many steps on every machine. */
static bool make_plan(const char *tarn, unsigned number)
{
    char from[512], to[512];
    path_of(from, number, "pickle");
    path_of(to, number, "plan");
    char *arguments[] = {"tarn", "plan", "--steps", "20000000", "-o", to, from, NULL};
    return run(tarn, arguments);
}

static void check(unsigned number)
{
    const char *name = name_of(number), *tarn = getenv("TARN"), *ready = getenv("GPU_PLANS");
    char plan[512], setting[528];
    path_of(plan, number, "plan");
    snprintf(setting, sizeof setting, "plan:%s", plan);
    if (!run_self("record", number))
        gpu_say(GPU_FAIL, name, "the run was not recorded");
    else if (!ready && (!tarn || access(tarn, X_OK)))
        gpu_say(GPU_SKIP, name,
                "the run is recorded, but there is no program tarn to plan it: TARN names it, "
                "GPU_PLANS a folder with "
                "plans");
    else if (!ready && !make_plan(tarn, number))
        gpu_say(GPU_FAIL, name, "%s made no plan", tarn);
    else if (setenv("TARN_ALLOC_CONF", setting, 1) || !run_self("follow", number))
        gpu_say(GPU_FAIL, name, "the run with the plan failed");
    else
        gpu_say(GPU_PASS, name,
                ready ? "recorded, and repeated with a plan of another recording"
                      : "recorded, planned and repeated");
    unsetenv("TARN_ALLOC_CONF");
}

int main(int argc, char **argv)
{
    int status = gpu_start();
    if (status)
        return status;
    if (argc == 3) {
        unsigned number = (unsigned)atoi(argv[2]);
        return strcmp(argv[1], "record") == 0 ? record(number) : follow(number);
    }
    for (unsigned number = 1; number <= STREAMS + 1; number++)
        check(number);
    return gpu_end();
}
