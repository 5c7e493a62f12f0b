/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The server of `tarn metrics`: libmicrohttpd, in one thread, so that scrapes come one after the
 * other. Each scrape gets a new text, and nothing is kept in between. A connection serves one
 * request and is closed some seconds after it began, whatever it does: with a limit on silence
 * alone, a client could keep others out by sending a byte now and then. */
#include "command.h"
#include "metrics/machine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Where to listen: "[::1]:9000", "127.0.0.1:9000" or "9000". */
struct place {
    char address[256], port[8];
};

static bool parse_place(const char *where, struct place *place)
{
    const char *colon = strrchr(where, ':'), *port = colon ? colon + 1 : where;
    size_t digits = strspn(port, "0123456789"), length = colon ? (size_t)(colon - where) : 0;
    if (!digits || port[digits] || digits > 5 || strtol(port, NULL, 10) > 65535 ||
        length >= sizeof place->address || colon == where)
        return false;
    snprintf(place->port, sizeof place->port, "%s", port);
    if (!colon) {
        snprintf(place->address, sizeof place->address, "127.0.0.1");
        return true;
    }
    bool bracket = where[0] == '[';
    if (bracket != (where[length - 1] == ']') || (!bracket && memchr(where, ':', length)))
        return false;
    snprintf(place->address, sizeof place->address, "%.*s", (int)length - 2 * bracket,
             where + bracket);
    return place->address[0] != '\0';
}

bool metrics_is_place(const char *where)
{
    struct place place;
    return parse_place(where, &place);
}

#ifdef TARN_HAVE_MICROHTTPD
#include <microhttpd.h>

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Bounds of the server. A connection is closed MOST_SECONDS after its first byte. There are enough
 * connections that silent ones do not delay a scrape until then, and one address cannot have all of
 * them. The head of a request has at most HEAD_BYTES. */
enum {
    MOST_CONNECTIONS = 1000,
    MOST_OF_ADDRESS = 400,
    MOST_SECONDS = 5,
    HEAD_BYTES = 8192,
    FILES_BESIDE = 64
};

/* The open connections. */
static struct {
    pthread_mutex_t lock; /* while it is held, the server's thread closes no number */
    struct {
        int file; /* the file's number + 1; 0: the slot is free */
        time_t began;
    } list[MOST_CONNECTIONS];
} connections = {.lock = PTHREAD_MUTEX_INITIALIZER};

static time_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static void notify(void *unused, struct MHD_Connection *connection, void **context,
                   enum MHD_ConnectionNotificationCode code)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    (void)unused, (void)context;
    if (!info)
        return;
    bool begins = code == MHD_CONNECTION_NOTIFY_STARTED;
    pthread_mutex_lock(&connections.lock);
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        if (connections.list[i].file == (begins ? 0 : info->connect_fd + 1)) {
            connections.list[i].file = begins ? info->connect_fd + 1 : 0;
            connections.list[i].began = now_s();
            break;
        }
    pthread_mutex_unlock(&connections.lock);
}

/* Shuts old connections down; the server's thread then finds them ended. */
static void end_old_connections(void)
{
    pthread_mutex_lock(&connections.lock);
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        if (connections.list[i].file && now_s() - connections.list[i].began >= MOST_SECONDS)
            (void)shutdown(connections.list[i].file - 1, SHUT_RDWR);
    pthread_mutex_unlock(&connections.lock);
}

/* Leaves paths undecoded: a decoded one with a 0 byte would equal a shorter path. */
static size_t as_it_is(void *unused, struct MHD_Connection *connection, char *text)
{
    (void)unused, (void)connection;
    return strlen(text);
}

static enum MHD_Result queue(struct MHD_Connection *connection, unsigned status,
                             struct MHD_Response *response)
{
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status,
                                   const char *text)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                  "text/plain; charset=utf-8");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    return queue(connection, status, response);
}

static enum MHD_Result answer_metrics(struct MHD_Connection *connection, const char *directory)
{
    struct metrics_text text;
    if (!metrics_text_make(directory, &text))
        return answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
    struct MHD_Response *response =
        MHD_create_response_from_buffer(text.length, text.text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text.text);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, METRICS_TYPE);
    return queue(connection, MHD_HTTP_OK, response);
}

static enum MHD_Result answer(void *directory, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **state)
{
    static int begun;
    (void)version, (void)upload;
    /* so far only the head of the request has come; the next call answers */
    if (*state != &begun) {
        *state = &begun;
        return MHD_YES;
    }
    if (*upload_size) {
        *upload_size = 0;
        return MHD_YES;
    }
    bool is_metrics = strcmp(url, "/metrics") == 0;
    if (!is_metrics && strcmp(url, "/") != 0)
        return answer_text(connection, MHD_HTTP_NOT_FOUND, "there is /metrics\n");
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD\n");
    return is_metrics ? answer_metrics(connection, directory)
                      : answer_text(connection, MHD_HTTP_OK, "tarn metrics: /metrics\n");
}

/* Returns a listening socket, or -1 after an error message. */
static int listen_at(const struct place *place, const char *where)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    int code = getaddrinfo(place->address, place->port, &hints, &found), listener = -1, on = 1;
    if (code) {
        fprintf(stderr, "tarn metrics: %s: %s\n", where,
                code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
        return -1;
    }
    listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool done =
        listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(listener, found->ai_addr, found->ai_addrlen) == 0 && listen(listener, SOMAXCONN) == 0;
    freeaddrinfo(found);
    if (done)
        return listener;
    fprintf(stderr, "tarn metrics: %s: %s\n", where, strerror(errno));
    if (listener >= 0)
        close(listener);
    return -1;
}

/* Prints where it listens, since the system chooses the port if the user named port 0. */
static void say_where(int listener, const struct place *place)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    char port[NI_MAXSERV] = "";
    bool v6 = strchr(place->address, ':') != NULL;
    if (getsockname(listener, (struct sockaddr *)&address, &size) ||
        getnameinfo((struct sockaddr *)&address, size, NULL, 0, port, sizeof port, NI_NUMERICSERV))
        snprintf(port, sizeof port, "%s", place->port);
    printf("http://%s%s%s:%s/metrics\n", v6 ? "[" : "", place->address, v6 ? "]" : "", port);
    fflush(stdout);
}

int metrics_serve(const char *where, const char *directory)
{
    struct place place;
    sigset_t signals;
    if (!parse_place(where, &place))
        return COMMAND_USAGE;
    int listener = listen_at(&place, where);
    if (listener < 0)
        return COMMAND_FAILED;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before the server's thread, which inherits it */
    struct rlimit files;
    unsigned most = MOST_CONNECTIONS; /* fewer if the process may not open that many files */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < MOST_CONNECTIONS + FILES_BESIDE)
        most = files.rlim_cur > 2 * FILES_BESIDE ? (unsigned)files.rlim_cur - FILES_BESIDE
                                                 : FILES_BESIDE;
    unsigned of_address = most < 2 * MOST_OF_ADDRESS ? most / 2 : MOST_OF_ADDRESS;
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, answer,
        (void *)(uintptr_t)directory, MHD_OPTION_LISTEN_SOCKET, listener,
        MHD_OPTION_CONNECTION_LIMIT, most, MHD_OPTION_PER_IP_CONNECTION_LIMIT, of_address,
        MHD_OPTION_CONNECTION_TIMEOUT, MOST_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HEAD_BYTES, MHD_OPTION_NOTIFY_CONNECTION, notify, NULL,
        MHD_OPTION_UNESCAPE_CALLBACK, as_it_is, NULL, MHD_OPTION_END);
    if (!daemon) {
        fprintf(stderr, "tarn metrics: the server could not be started: %s\n", strerror(errno));
        return COMMAND_FAILED;
    }
    say_where(listener, &place);
    while (sigtimedwait(&signals, NULL, &(struct timespec){.tv_sec = 1}) < 0)
        end_old_connections();
    MHD_stop_daemon(daemon);
    return COMMAND_OK;
}
#else
int metrics_serve(const char *where, const char *directory)
{
    (void)where, (void)directory;
    fputs("tarn metrics: this program was built without libmicrohttpd, so that it cannot listen\n"
          "Write the text to a file from time to time: tarn metrics >FILE\n",
          stderr);
    return COMMAND_FAILED;
}
#endif
