/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The other side of a check between processes: this program again, with a role and a socket as its
 * arguments. Both sides wait for each other by words of one letter. */
#ifndef TESTS_GPU_SIDE_H
#define TESTS_GPU_SIDE_H

#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Starts a side on a pair of sockets of this type. `program` is its first argument. -1 on
 * failure. */
static inline pid_t side_start(const char *program, const char *role, int type, int *socket)
{
    int ends[2];
    char number[16];
    pid_t process = -1;
    if (socketpair(AF_UNIX, type, 0, ends))
        return -1;
    snprintf(number, sizeof number, "%d", ends[1]);
    char *arguments[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)role, number, NULL};
    if (posix_spawn(&process, "/proc/self/exe", NULL, NULL, arguments, environ))
        process = -1;
    close(ends[1]);
    *socket = ends[0];
    return process;
}

/* Kills it first with the signal `killed`, if that is not 0. Whether it has ended as it should: by
 * that signal, or well. */
static inline bool side_end(pid_t process, int killed)
{
    int status = 0;
    if (killed)
        (void)kill(process, killed);
    if (waitpid(process, &status, 0) != process)
        return false;
    return killed ? WIFSIGNALED(status) && WTERMSIG(status) == killed
                  : WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static inline bool say(int socket, char word)
{
    return send(socket, &word, 1, MSG_NOSIGNAL) == 1;
}

static inline bool hear(int socket, char word)
{
    char heard = 0;
    return recv(socket, &heard, 1, 0) == 1 && heard == word;
}

#endif
