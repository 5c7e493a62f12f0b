/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The manager of an owner of kept pools: owner.h. It is a process with one thread that obeys the
 * test's orders one after the other, and answers each. */
#include "support/owner.h"
#include "support/fd_store.h"
#include "support/host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum verb { KILL, KILL_REMOVE, START, START_AFTER, WAIT };

struct order {
    enum verb verb;
    unsigned ms;
};

static char path[100];
static pid_t manager;    /* 0: there is none */
static int control = -1; /* the socket to the manager */

/* ---- In the manager ---- */

static pid_t owner; /* 0: there is none */
static bool service;
static struct fd_store store = {.room = FD_STORE_MOST, .notifications = -1};

static void kill_owner(bool removes)
{
    if (owner > 0)
        CHECK(kill(owner, SIGKILL) == 0 && waitpid(owner, NULL, 0) == owner);
    owner = 0;
    if (removes && !service)
        (void)unlink(path);
}

/* Becomes an owner, whose manager this process's parent is. */
_Noreturn static void become_owner(char *program, int output)
{
    char number[16];
    dup2(output, STDOUT_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (service) {
        fd_store_name(&store);
        snprintf(number, sizeof number, "%d", (int)getpid());
        (void)setenv("LISTEN_PID", number, 1);
        fd_store_pass_on(&store);
    }
    execl(program, program, "keep", "--socket", path, (char *)NULL);
    _exit(127);
}

/* Obeys the owner meanwhile: it may wait for that before it listens. */
static void await_listening(int output)
{
    struct pollfd files[] = {{.fd = output, .events = POLLIN},
                             {.fd = store.notifications, .events = POLLIN}};
    char line[200] = "";
    while (!files[0].revents) {
        CHECK(poll(files, 2, -1) > 0 || errno == EINTR);
        if (service)
            fd_store_obey(&store);
    }
    bool listens = read(output, line, sizeof line - 1) > 0 && strstr(line, "listening");
    int status = 0;
    if (!listens && waitpid(owner, &status, 0) == owner)
        fprintf(stderr, "an owner has ended before it listened: status %#x\n", (unsigned)status);
    CHECK(listens);
}

static void start_owner(void)
{
    int ends[2] = {-1, -1};
    CHECK(owner == 0 && pipe2(ends, O_CLOEXEC) == 0);
    if (service)
        fd_store_obey(&store); /* what an owner has sent, it has sent */
    owner = fork();
    CHECK(owner >= 0);
    if (owner == 0)
        become_owner(getenv("TARN_PROGRAM"), ends[1]);
    close(ends[1]);
    await_listening(ends[0]);
    close(ends[0]);
}

static unsigned obey(const struct order *order)
{
    switch (order->verb) {
    case KILL:
    case KILL_REMOVE:
        kill_owner(order->verb == KILL_REMOVE);
        break;
    case START:
        start_owner();
        break;
    case START_AFTER:
    case WAIT:
        break;
    }
    if (service)
        fd_store_obey(&store);
    return store.count;
}

/* Answers orders until the test ends. While an owner is to start later, orders wait. */
static void manage(int socket)
{
    struct order order;
    struct pollfd files[] = {{.fd = socket, .events = POLLIN},
                             {.fd = store.notifications, .events = POLLIN}};
    for (;;) {
        if (poll(files, 2, -1) < 0)
            continue;
        if (files[1].revents)
            fd_store_obey(&store);
        if (!files[0].revents)
            continue;
        if (recv(socket, &order, sizeof order, 0) != sizeof order)
            return;
        unsigned held = obey(&order);
        if (send(socket, &held, sizeof held, MSG_NOSIGNAL) != sizeof held)
            return;
        if (order.verb == START_AFTER) {
            struct timespec time = {0, (long)order.ms * 1000000};
            (void)nanosleep(&time, NULL);
            start_owner();
        }
    }
}

_Noreturn static void be_manager(int socket)
{
    char notify[sizeof path];
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that has failed nothing stays */
    snprintf(notify, sizeof notify, "%.90s-manager", path);
    if (service)
        fd_store_begin(&store, notify, path);
    manage(socket);
    kill_owner(true);
    if (service)
        fd_store_end(&store, path);
    _exit(0);
}

/* ---- In the test ---- */

static unsigned ask(enum verb verb, unsigned ms)
{
    struct order order = {verb, ms};
    unsigned held = 0;
    CHECK(send(control, &order, sizeof order, MSG_NOSIGNAL) == sizeof order);
    CHECK(recv(control, &held, sizeof held, 0) == sizeof held);
    return held;
}

bool owner_begin(const char *test, bool is_service)
{
    const char *program = getenv("TARN_PROGRAM");
    int ends[2] = {-1, -1};
    if (!program || access(program, X_OK) != 0)
        return false;
    snprintf(path, sizeof path, "/tmp/tarn-%s-%d", test, (int)getpid());
    service = is_service;
    CHECK(setenv("TARN_KEEP", path, 1) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    fflush(NULL);
    manager = fork();
    CHECK(manager >= 0);
    if (manager == 0) {
        close(ends[0]);
        be_manager(ends[1]);
    }
    close(ends[1]);
    control = ends[0];
    owner_start();
    return true;
}

void owner_end(void)
{
    if (manager <= 0)
        return;
    (void)shutdown(control, SHUT_RDWR); /* other processes may have it open */
    close(control);
    CHECK(waitpid(manager, NULL, 0) == manager);
    manager = 0;
    control = -1;
}

void owner_kill(bool removes)
{
    (void)ask(removes ? KILL_REMOVE : KILL, 0);
}

void owner_start(void)
{
    (void)ask(START, 0);
}

void owner_start_after(unsigned ms)
{
    (void)ask(START_AFTER, ms);
}

unsigned owner_wait(void)
{
    return ask(WAIT, 0);
}

void owner_list(char *text, size_t room)
{
    char command[300];
    snprintf(command, sizeof command, "\"$TARN_PROGRAM\" keep --socket %s --list", path);
    FILE *out = popen(command, "r");
    CHECK(out != NULL);
    size_t count = fread(text, 1, room - 1, out);
    text[count] = '\0';
    CHECK(pclose(out) == 0);
    if (strncmp(text, "no pools", 8) == 0)
        text[0] = '\0';
}

bool owner_lists(const char *pool)
{
    char text[4000];
    size_t length = strlen(pool);
    owner_list(text, sizeof text);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line != 0)
        if (strncmp(line, pool, length) == 0 && line[length] == ' ')
            return true;
    return false;
}
