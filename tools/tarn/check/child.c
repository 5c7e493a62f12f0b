/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Runs a function in a child, with a time limit. A child that waits inside the kernel for a driver
 * cannot be killed until the driver answers. It is left behind, and nobody waits for it. */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double child_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void run(json_t *(*function)(const void *), const void *argument, int answer)
{
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (nowhere >= 0) { /* vendors' libraries may print anything */
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
    }
    json_t *found = function(argument);
    bool done = found && json_dumpfd(found, answer, JSON_COMPACT | JSON_ENSURE_ASCII) == 0;
    _exit(done ? 0 : 1);
}

/* Reads until the other end is closed or the time is over. The caller frees the text. NULL if the
 * time was over, or without memory. */
static char *read_all(int file, double until)
{
    size_t length = 0, room = 4096;
    char *text = malloc(room);
    while (text) {
        struct pollfd ready = {.fd = file, .events = POLLIN};
        double left = until - child_clock();
        ssize_t got = -1;
        if (left > 0 && poll(&ready, 1, (int)(left * 1000) + 1) > 0)
            got = read(file, text + length, room - length - 1);
        if (got == 0) {
            text[length] = '\0';
            return text;
        }
        if (got < 0 && (left <= 0 || errno != EINTR)) {
            if (left <= 0 || child_clock() >= until)
                break;
            continue;
        }
        length += got > 0 ? (size_t)got : 0;
        if (length + 1 == room) {
            char *more = realloc(text, room *= 2);
            if (!more)
                break;
            text = more;
        }
    }
    free(text);
    return NULL;
}

/* Waits a short time for a child that was killed or has closed its pipe. */
static int reap(pid_t child)
{
    const struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
    int status = -1;
    for (double until = child_clock() + 2; child_clock() < until; nanosleep(&pause, NULL))
        if (waitpid(child, &status, WNOHANG) == child)
            return status;
    return -1;
}

json_t *child_answer(json_t *(*function)(const void *), const void *argument, double seconds,
                     char *why, size_t size, bool *late)
{
    int ends[2];
    const double until = child_clock() + seconds;
    why[0] = '\0';
    *late = false;
    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC)) {
        snprintf(why, size, "no pipe: %s", strerror(errno));
        return NULL;
    }
    pid_t child = fork();
    if (child == 0)
        run(function, argument, ends[1]);
    close(ends[1]);
    char *text = child > 0 ? read_all(ends[0], until) : NULL;
    close(ends[0]);
    if (child < 0) {
        snprintf(why, size, "no process: %s", strerror(errno));
        return NULL;
    }
    *late = !text && child_clock() >= until;
    /* kill the child and the processes that it started: after its answer they are not needed */
    kill(-child, SIGKILL);
    if (!text)
        kill(child, SIGKILL);
    int status = reap(child);
    json_t *answer = text ? json_loads(text, 0, NULL) : NULL;
    if (*late)
        snprintf(why, size, "it took longer than %d s", (int)seconds);
    else if (!text)
        snprintf(why, size, "out of memory");
    else if (!answer && status != -1 && WIFSIGNALED(status))
        snprintf(why, size, "ended by signal %d", WTERMSIG(status));
    else if (!answer)
        snprintf(why, size, "ended without an answer");
    free(text);
    return answer;
}
