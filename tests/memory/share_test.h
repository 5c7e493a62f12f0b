/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of shares have in common. */
#ifndef TESTS_MEMORY_SHARE_TEST_H
#define TESTS_MEMORY_SHARE_TEST_H

#include "support/host.h"
#include "support/role.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE (20 * MIB)
#define DEVICE (512 * MIB)

static inline tarn_share *export_of(const void *block)
{
    tarn_share *share = NULL;
    OK(tarn_export(block, &share));
    CHECK(share != NULL);
    return share;
}

static inline tarn_share_info info_of(const tarn_share *share)
{
    tarn_share_info info = {.size = sizeof info};
    OK(tarn_share_info_get(share, &info));
    return info;
}

static inline void *import_of(const tarn_share *share, int device)
{
    void *pointer = NULL;
    OK(tarn_import(share, device, &pointer));
    CHECK(pointer != NULL);
    return pointer;
}

static inline bool reaches(int device, const void *address)
{
    tarn_host_extent extent;
    return tarn_host_extent_get(device, address, 1, &extent) == TARN_OK && extent.accessible;
}

/* ---- Another process: the test's program, run again in a role ---- */

struct side {
    pid_t process;
    int socket;
};

/* Starts this program as the other side, in a role. */
static inline struct side start_side(const char *role, int type)
{
    int ends[2];
    char number[16];
    CHECK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) == 0);
    snprintf(number, sizeof number, "%d", ends[1]);
    fflush(NULL);
    struct side side = {.process = fork(), .socket = ends[0]};
    CHECK(side.process >= 0);
    if (side.process == 0) {
        (void)fcntl(ends[1], F_SETFD, 0);
        execl("/proc/self/exe", "side", role, number, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    return side;
}

static inline void end_side(struct side side, int expected)
{
    int status = 0;
    close(side.socket);
    CHECK(waitpid(side.process, &status, 0) == side.process);
    CHECK((WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)) == expected);
}

static inline void say(int socket, char word)
{
    CHECK(send(socket, &word, 1, MSG_NOSIGNAL) == 1);
}

static inline void hear(int socket, char word)
{
    char heard = 0;
    CHECK(recv(socket, &heard, 1, 0) == 1);
    CHECK(heard == word);
}

static inline void fill(void *block, size_t size, int seed)
{
    for (size_t i = 0; i < size; i += 4096)
        *(int *)((char *)block + i) = seed + (int)(i / 4096);
    memset((char *)block + size - 64, seed, 64);
}

static inline bool holds(const void *block, size_t size, int seed)
{
    for (size_t i = 0; i + 4096 < size; i += 4096)
        if (*(const int *)((const char *)block + i) != seed + (int)(i / 4096))
            return false;
    return *((const unsigned char *)block + size - 1) == (unsigned char)seed;
}

#endif
