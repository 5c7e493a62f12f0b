/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Processes beside the model's: see sides.h. */
#include "mixed/model/sides.h"
#include "support/host.h"
#include "support/role.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- A process, from outside ---- */

struct side side_start(void)
{
    struct timeval patience = {.tv_sec = 100};
    int ends[2] = {-1, -1};
    char number[16];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    snprintf(number, sizeof number, "%d", ends[1]);
    struct side side = {.process = fork(), .socket = ends[0]};
    CHECK(side.process >= 0);
    if (side.process == 0) {
        (void)fcntl(ends[1], F_SETFD, 0);
        execl("/proc/self/exe", "side", "obey", number, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    return side;
}

bool side_ask(const struct side *side, const struct side_order *order, struct side_answer *answer)
{
    return send(side->socket, order, sizeof *order, MSG_NOSIGNAL) == sizeof *order &&
           recv(side->socket, answer, sizeof *answer, 0) == sizeof *answer;
}

bool side_kill(struct side *side, unsigned calls)
{
    struct side_order work = {.verb = SIDE_WORK, .size = calls};
    if (!calls)
        (void)kill(side->process, SIGKILL);
    else if (send(side->socket, &work, sizeof work, MSG_NOSIGNAL) != sizeof work)
        return false;
    return side_end(side) == 128 + SIGKILL;
}

int side_end(struct side *side)
{
    int status = 0;
    close(side->socket);
    CHECK(waitpid(side->process, &status, 0) == side->process);
    *side = (struct side){0, -1};
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- A process, from inside ---- */

static tarn_pool *pool;
static struct {
    unsigned char *start; /* NULL: there is none */
    size_t size;
} blocks[SIDE_BLOCKS];
static int device;
static bool ended; /* the pool was released, or the process has shut tarn down */

static void name_of(int number, char name[16])
{
    snprintf(name, 16, "block.%d", number);
}

static tarn_status seek(int number, tarn_sealed_block *found)
{
    char name[16];
    *found = (tarn_sealed_block){.size = sizeof *found};
    name_of(number, name);
    return tarn_pool_block_find(pool, name, found);
}

bool side_holds(const void *block, size_t size, const unsigned char data[2])
{
    const unsigned char *start = block;
    size_t part = size < SIDE_PART ? size : SIDE_PART, last = size - part;
    const size_t spots[] = {0, last / 2, last};
    for (int i = 0; i < 3; i++)
        for (size_t k = 0; k < part; k++)
            if (start[spots[i] + k] != data[0])
                return false;
    return !data[1] || memcmp(start, start + 1, size - 1) == 0;
}

/* What of the pool is sealed. A block whose contents are not what it says has the size 1. */
static tarn_status look(struct side_answer *answer, bool reads)
{
    for (int i = 0; i < SIDE_BLOCKS; i++) {
        tarn_sealed_block found;
        tarn_status status = seek(i, &found);
        if (status == TARN_ERROR_BUSY && reads) {
            status = tarn_pool_trim(pool, 0);
            if (!status)
                status = seek(i, &found);
        }
        if (status == TARN_ERROR_INVALID_ARGUMENT)
            continue;
        if (status)
            return status;
        bool right = side_holds(found.pointer, found.bytes, found.data);
        answer->blocks[i] = (struct side_block){right ? found.bytes : 1, found.data[0], true};
        blocks[i].start = reads ? NULL : found.pointer;
        blocks[i].size = found.bytes;
    }
    return TARN_OK;
}

static tarn_status keep(const struct side_order *order, struct side_answer *answer, bool reads)
{
    tarn_kept kept = {.size = sizeof kept};
    tarn_keep_options options = {.size = sizeof options,
                                 .device = device = order->number,
                                 .segment = order->size,
                                 .read = reads,
                                 .wait_ms = 30000};
    tarn_status status = tarn_pool_keep(order->name, &options, &pool, &kept);
    answer->count = kept.blocks;
    answer->adopted = kept.adopted;
    return status || reads ? status : look(answer, false);
}

static tarn_status allocate(int number, size_t size, unsigned char value)
{
    tarn_status status = tarn_pool_alloc(pool, 0, size, (void **)&blocks[number].start);
    blocks[number].size = size;
    if (!status)
        memset(blocks[number].start, value, size);
    return status;
}

static tarn_status seal(int number, unsigned char value)
{
    char name[16];
    unsigned char data[TARN_KEEP_DATA_BYTES] = {value, true};
    name_of(number, name);
    return tarn_pool_block_seal(blocks[number].start, name, data, NULL);
}

static tarn_status free_one(int number)
{
    tarn_status status = tarn_free(blocks[number].start);
    blocks[number].start = NULL;
    return status;
}

/* What is not sealed comes and goes, in the memory among what is. Then the process is killed. */
_Noreturn static void work(size_t calls)
{
    uint64_t random = calls;
    void *several[6] = {NULL};
    for (size_t i = 0; i < calls; i++) {
        void **one = &several[random_next(&random) % 6];
        if (*one) {
            OK(tarn_free(*one));
            *one = NULL;
        } else if (tarn_pool_alloc(pool, 0, 1 + random_next(&random) % (3 * MIB), one) == TARN_OK) {
            memset(*one, 0, 1000);
        }
        if (random_next(&random) % 8 == 0)
            OK(tarn_pool_trim(pool, 0));
    }
    (void)raise(SIGKILL);
    _exit(1);
}

static tarn_status obey(const struct side_order *order, struct side_answer *answer)
{
    int number = order->number;
    tarn_status status = TARN_OK;
    switch (order->verb) {
    case SIDE_BEGIN:
        host_start_with(number, order->size);
        return TARN_OK;
    case SIDE_KEEP:
    case SIDE_READ:
        return keep(order, answer, order->verb == SIDE_READ);
    case SIDE_LOOK:
        return look(answer, true);
    case SIDE_ALLOCATE:
        return allocate(number, order->size, order->value);
    case SIDE_SEAL:
        return seal(number, order->value);
    case SIDE_UNSEAL:
        return tarn_pool_block_unseal(blocks[number].start);
    case SIDE_WRITE:
        memset(blocks[number].start, order->value, blocks[number].size);
        return TARN_OK;
    case SIDE_FREE:
        return free_one(number);
    case SIDE_TRIM:
        return tarn_pool_trim(pool, 0);
    case SIDE_SUSPEND:
        return tarn_pool_suspend(pool, order->flag);
    case SIDE_RESUME:
        return tarn_pool_resume(pool);
    case SIDE_WORK:
        work(order->size);
    case SIDE_FREES:
        ended = true;
        for (int i = 0; i < SIDE_BLOCKS && !status; i++)
            status = blocks[i].start ? free_one(i) : TARN_OK;
        return status ? status : tarn_pool_release(pool);
    case SIDE_LEAVES:
        ended = true;
        return order->flag ? tarn_shutdown() : tarn_pool_release(pool);
    }
    return TARN_ERROR_INVALID_ARGUMENT;
}

/* The memory of the pool; 0 if it has ended. */
static size_t bytes_now(void)
{
    tarn_stats stats = {.size = sizeof stats};
    return pool && !ended && tarn_pool_stats_get(pool, &stats) == TARN_OK
               ? (size_t)stats.reserved_bytes[0].current
               : 0;
}

/* Ends with the socket. */
static void obey_all(int socket)
{
    struct side_order order;
    while (recv(socket, &order, sizeof order, 0) == sizeof order) {
        struct side_answer answer = {0};
        answer.status = (int)obey(&order, &answer);
        if (answer.status)
            snprintf(answer.text, sizeof answer.text, "%s", tarn_last_error());
        answer.bytes = bytes_now();
        if (send(socket, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer)
            return;
    }
}

static void prepare(void) {}

bool side_play(int argc, char **argv)
{
    static const struct role roles[] = {{"obey", obey_all}, {NULL, NULL}};
    return strcmp(argv[0], "side") == 0 && role_play(argc, argv, prepare, roles);
}
