/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Four kinds of lock: a mutex that cannot fail, over pthreads; a quicker one, over futexes; a lock
 * that is shared or exclusive; a spin lock for a few dozen instructions. Each has a rank, its place
 * in the one order in which locks are taken (lock_order.h). Builds with TARN_DEBUG_CHECKS check the
 * order; other builds do not store the rank. */
#ifndef TARN_BASE_LOCK_H
#define TARN_BASE_LOCK_H

#include "base/thread/cancel.h"
#include "base/thread/lock_order.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#define CACHE_LINE 64 /* bytes: data that different threads write often should not share a line */

#if defined(TARN_DEBUG_CHECKS) && TARN_DEBUG_CHECKS

typedef struct {
    pthread_mutex_t pthread;
    enum lock_rank rank;
} mutex;
#define MUTEX_INITIALIZER(its_rank)                              \
    {                                                            \
        .pthread = PTHREAD_MUTEX_INITIALIZER, .rank = (its_rank) \
    }
#define MUTEX_PTHREAD(m) (&(m)->pthread)
#define MUTEX_RANK(m) ((m)->rank)

static inline void mutex_rank_set(mutex *m, enum lock_rank rank)
{
    m->rank = rank;
}

/* The locks that the calling thread holds. `lock_before` is called before a wait for a lock. If
 * that violates the order it aborts, and names both locks and the places where they were taken. */
void lock_before(enum lock_rank rank, const char *file, int line);
void lock_taken(const void *lock, enum lock_rank rank, const char *file, int line);
void lock_left(const void *lock);

#else

typedef pthread_mutex_t mutex;
#define MUTEX_INITIALIZER(its_rank) PTHREAD_MUTEX_INITIALIZER
#define MUTEX_PTHREAD(m) (m)
#define MUTEX_RANK(m) LOCK_SPIN

static inline void mutex_rank_set(mutex *m, enum lock_rank rank)
{
    (void)m, (void)rank;
}

static inline void lock_before(enum lock_rank rank, const char *file, int line)
{
    (void)rank, (void)file, (void)line;
}

static inline void lock_taken(const void *lock, enum lock_rank rank, const char *file, int line)
{
    (void)lock, (void)rank, (void)file, (void)line;
}

static inline void lock_left(const void *lock)
{
    (void)lock;
}

#endif

/* A mutex for a path that takes it often: without competition it is taken and released inline,
 * without a call. Conditions do not work with it. The states are those of the second mutex in
 * Drepper, "Futexes Are Tricky". */
enum { QUICK_FREE, QUICK_HELD, QUICK_AWAITED };
typedef struct {
    atomic_uint state; /* QUICK_AWAITED: held, and a thread may sleep until it is released */
    enum lock_rank rank;
} quick_mutex;

void quick_mutex_wait(quick_mutex *m); /* and then takes it */
void quick_mutex_wake(quick_mutex *m);

static inline void quick_mutex_init(quick_mutex *m, enum lock_rank rank)
{
    *m = (quick_mutex){QUICK_FREE, rank};
}

/* True if another thread held it. */
static inline bool mutex_lock_telling_from(quick_mutex *m, const char *file, int line)
{
    unsigned state = QUICK_FREE;
    lock_before(m->rank, file, line);
    bool waited = !atomic_compare_exchange_strong_explicit(
        &m->state, &state, QUICK_HELD, memory_order_acquire, memory_order_relaxed);
    if (waited)
        quick_mutex_wait(m);
    lock_taken(m, m->rank, file, line);
    return waited;
}
#define mutex_lock_telling(m) mutex_lock_telling_from(m, __FILE__, __LINE__)

static inline void quick_mutex_lock_from(quick_mutex *m, const char *file, int line)
{
    (void)mutex_lock_telling_from(m, file, line);
}

static inline void quick_mutex_unlock(quick_mutex *m)
{
    lock_left(m);
    if (atomic_exchange_explicit(&m->state, QUICK_FREE, memory_order_release) == QUICK_AWAITED)
        quick_mutex_wake(m);
}

/* If the C library can do that, a waiting thread spins before it sleeps: most locks are held for
 * less time than a sleep takes. */
static inline void slow_mutex_init(mutex *m, enum lock_rank rank)
{
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
#ifdef __GLIBC__
    pthread_mutexattr_settype(&how, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    pthread_mutex_init(MUTEX_PTHREAD(m), &how);
    pthread_mutexattr_destroy(&how);
    mutex_rank_set(m, rank);
}

static inline void slow_mutex_lock_from(mutex *m, const char *file, int line)
{
    lock_before(MUTEX_RANK(m), file, line);
    pthread_mutex_lock(MUTEX_PTHREAD(m));
    lock_taken(m, MUTEX_RANK(m), file, line);
}

/* Never waits, so it may violate the order. Locks taken after it may not. */
static inline bool mutex_try_from(mutex *m, const char *file, int line)
{
    if (pthread_mutex_trylock(MUTEX_PTHREAD(m)))
        return false;
    lock_taken(m, MUTEX_RANK(m), file, line);
    return true;
}
#define mutex_try(m) mutex_try_from(m, __FILE__, __LINE__)

static inline void slow_mutex_unlock(mutex *m)
{
    lock_left(m);
    pthread_mutex_unlock(MUTEX_PTHREAD(m));
}

/* These work for both kinds of mutex. */
#define mutex_init(m, rank) \
    _Generic((m), mutex * : slow_mutex_init, quick_mutex * : quick_mutex_init)(m, rank)
#define mutex_lock(m)                              \
    _Generic((m), mutex *                          \
             : slow_mutex_lock_from, quick_mutex * \
             : quick_mutex_lock_from)(m, __FILE__, __LINE__)
#define mutex_unlock(m) \
    _Generic((m), mutex * : slow_mutex_unlock, quick_mutex * : quick_mutex_unlock)(m)

static inline void mutex_finish(mutex *m)
{
    pthread_mutex_destroy(MUTEX_PTHREAD(m));
}

/* Releases the lock while it waits. `until` is a time of the condition's clock, after which the
 * result is ETIMEDOUT; NULL: waits for ever. */
static inline int condition_wait(pthread_cond_t *condition, mutex *m, const struct timespec *until)
{
    struct cancel before = cancel_off();
    int code = until ? pthread_cond_timedwait(condition, MUTEX_PTHREAD(m), until)
                     : pthread_cond_wait(condition, MUTEX_PTHREAD(m));
    cancel_restore(before);
    return code;
}

/* A lock that many threads share, or that one thread holds exclusively. A thread that waits to hold
 * it exclusively keeps `gate` shut, and later threads wait behind the gate. So the waiting ends.
 * (glibc's rwlock can do that, musl's cannot.) A thread that holds the lock in either way must not
 * take it again. */
typedef struct {
    pthread_mutex_t gate;
    pthread_rwlock_t lock;
    enum lock_rank rank;
} shared_lock;

static inline void shared_init(shared_lock *s, enum lock_rank rank)
{
    pthread_mutex_init(&s->gate, NULL);
    pthread_rwlock_init(&s->lock, NULL);
    s->rank = rank;
}

static inline void shared_lock_from(shared_lock *s, bool alone, const char *file, int line)
{
    lock_before(s->rank, file, line);
    pthread_mutex_lock(&s->gate);
    if (alone)
        pthread_rwlock_wrlock(&s->lock);
    else
        pthread_rwlock_rdlock(&s->lock);
    pthread_mutex_unlock(&s->gate);
    lock_taken(s, s->rank, file, line);
}
#define shared_lock_shared(s) shared_lock_from(s, false, __FILE__, __LINE__)
#define shared_lock_alone(s) shared_lock_from(s, true, __FILE__, __LINE__)

/* These never wait, so they need no gate, and may violate the order. */
static inline bool shared_try_from(shared_lock *s, bool alone, const char *file, int line)
{
    if (alone ? pthread_rwlock_trywrlock(&s->lock) : pthread_rwlock_tryrdlock(&s->lock))
        return false;
    lock_taken(s, s->rank, file, line);
    return true;
}
#define shared_try_shared(s) shared_try_from(s, false, __FILE__, __LINE__)
#define shared_try_alone(s) shared_try_from(s, true, __FILE__, __LINE__)

static inline void shared_unlock(shared_lock *s)
{
    lock_left(s);
    pthread_rwlock_unlock(&s->lock);
}

static inline void shared_finish(shared_lock *s)
{
    pthread_rwlock_destroy(&s->lock);
    pthread_mutex_destroy(&s->gate);
}

/* Costs half as much as a mutex, because its release is a plain store. So no thread can sleep on
 * it: it is held for a few dozen instructions, never over a call that may wait for a mutex or enter
 * the system. All zero: free. */
typedef struct {
    atomic_bool held;
} spinlock;

/* A pause between two reads of what another processor writes. It reduces the load on that
 * processor, and on the core's other thread. */
static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline void spin_lock_from(spinlock *s, enum lock_rank rank, const char *file, int line)
{
    lock_before(rank, file, line);
    for (unsigned tries = 1; atomic_exchange_explicit(&s->held, true, memory_order_acquire);
         tries++)
        while (atomic_load_explicit(&s->held, memory_order_relaxed)) {
            spin_pause();
            if (tries++ % 64 == 0)
                sched_yield(); /* its holder may have lost its processor */
        }
    lock_taken(s, rank, file, line);
}
#define spin_lock(s, rank) spin_lock_from(s, rank, __FILE__, __LINE__)

static inline void spin_unlock(spinlock *s)
{
    lock_left(s);
    atomic_store_explicit(&s->held, false, memory_order_release);
}

#endif
