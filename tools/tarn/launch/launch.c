/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Starts the program and waits for it. Signals are blocked and waited for, so that none is lost
 * between a look and a wait. SIGPIPE is ignored: the files are written even if nobody reads the
 * summary. If SIGCHLD was ignored, nobody could wait for the program. So it is not ignored while
 * the program runs; the program itself finds it as it was. A signal of the terminal reaches the
 * program directly, because both are in one process group. A signal to this process alone is passed
 * on. */
#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int passed_on[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH};

/* How the program finds what is changed here. */
struct signals {
    sigset_t mask;
    struct sigaction child, pipe;
};

static void change(struct signals *before)
{
    const struct sigaction usual = {.sa_handler = SIG_DFL}, ignored = {.sa_handler = SIG_IGN};
    sigset_t set;
    sigaction(SIGCHLD, &usual, &before->child);
    sigaction(SIGPIPE, &ignored, &before->pipe);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        sigaddset(&set, passed_on[i]);
    sigprocmask(SIG_BLOCK, &set, &before->mask);
}

/* In the child. Why it could not become the program goes through the pipe, which exec() closes. */
static void become(char **command, const struct signals *before, int pipe_end)
{
    sigaction(SIGCHLD, &before->child, NULL);
    sigaction(SIGPIPE, &before->pipe, NULL);
    sigprocmask(SIG_SETMASK, &before->mask, NULL);
    execvp(command[0], command);
    int error = errno;
    _exit(write(pipe_end, &error, sizeof error) == sizeof error ? LAUNCH_NOT_RUN
                                                                : LAUNCH_NOT_FOUND);
}

static void pass_on(pid_t child, const siginfo_t *signal)
{
    if (signal->si_signo != SIGCHLD && signal->si_code != SI_KERNEL && signal->si_pid != child)
        kill(child, signal->si_signo);
}

static int wait_for(pid_t child, long (*each)(void *user), void *user)
{
    sigset_t set;
    siginfo_t signal;
    int status;
    sigprocmask(SIG_BLOCK, NULL, &set);
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
        const struct timespec pause = {.tv_nsec = 1000000 * each(user)};
        if (sigtimedwait(&set, &signal, &pause) > 0)
            pass_on(child, &signal);
    }
    if (ended < 0)
        return LAUNCH_NOT_RUN;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int launch(char **command, long (*each)(void *user), void *user)
{
    int ends[2], error = 0;
    struct signals before;
    if (pipe2(ends, O_CLOEXEC)) {
        perror("tarn run");
        return LAUNCH_NOT_RUN;
    }
    change(&before);
    pid_t child = fork();
    if (child == 0)
        become(command, &before, ends[1]);
    close(ends[1]);
    if (child < 0)
        error = errno;
    else if (read(ends[0], &error, sizeof error) != sizeof error)
        error = 0;
    close(ends[0]);
    if (error) {
        if (child > 0)
            waitpid(child, NULL, 0);
        fprintf(stderr, "tarn run: %s: %s\n", command[0], strerror(error));
        return error == ENOENT ? LAUNCH_NOT_FOUND : LAUNCH_NOT_RUN;
    }
    return wait_for(child, each, user);
}
