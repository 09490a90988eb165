/* stream.c - streams and events. Each stream has a thread that runs its tasks in order, and a clock of modelled
 * nanoseconds. An event holds the clock of its stream at the time when the stream reached it, so the elapsed time
 * between two events is what the model says, however busy the machine is. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "hip.h"

struct task {
	sim_task_fn fn;
	void *arg;
	struct task *next;
};

struct sim_stream {
	pthread_mutex_t mu;
	pthread_cond_t work, idle;
	struct task *head, *tail;
	uint64_t enqueued, done;
	_Atomic int64_t clock_ns;
	int device;
	bool blocking;  /* ordered with the null stream */
	bool closing;
	struct sim_stream *next;
};

struct sim_event {
	uint64_t recorded, reached;
	int64_t clock_ns;
	int references;
	bool timing;
};

static pthread_mutex_t streams_mu = PTHREAD_MUTEX_INITIALIZER;
static struct sim_stream *streams;               /* all of them, also the null streams */
static struct sim_stream *null_streams[SIM_MAX_GPUS];
static pthread_mutex_t events_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t events_cv = PTHREAD_COND_INITIALIZER;

static void *worker(void *arg)
{
	struct sim_stream *s = arg;
	pthread_mutex_lock(&s->mu);
	for (;;) {
		while (s->head == NULL && !s->closing)
			pthread_cond_wait(&s->work, &s->mu);
		struct task *t = s->head;
		if (t == NULL)
			break;
		s->head = t->next;
		if (s->head == NULL)
			s->tail = NULL;
		pthread_mutex_unlock(&s->mu);
		t->fn(s, t->arg);
		free(t);
		pthread_mutex_lock(&s->mu);
		s->done++;
		pthread_cond_broadcast(&s->idle);
	}
	pthread_mutex_unlock(&s->mu);
	pthread_mutex_destroy(&s->mu);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->idle);
	free(s);
	return NULL;
}

int simrocm_thread(void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	int rc = pthread_create(&thread, &attr, fn, arg);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

static struct sim_stream *new_stream(int device, bool blocking)
{
	struct sim_stream *s = calloc(1, sizeof *s);
	if (s == NULL)
		return NULL;
	pthread_mutex_init(&s->mu, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->idle, NULL);
	s->device = device;
	s->blocking = blocking;
	for (struct sim_stream *o = streams; o != NULL; o = o->next)
		if (o->device == device && o->clock_ns > s->clock_ns)
			s->clock_ns = o->clock_ns;
	if (simrocm_thread(worker, s) != 0) {
		free(s);
		return NULL;
	}
	s->next = streams;
	streams = s;
	return s;
}

struct sim_stream *simrocm_stream(void *handle)
{
	if (handle != NULL)
		return handle;
	int device = simrocm_current_device();
	pthread_mutex_lock(&streams_mu);
	if (null_streams[device] == NULL)
		null_streams[device] = new_stream(device, false);
	struct sim_stream *s = null_streams[device];
	pthread_mutex_unlock(&streams_mu);
	return s;
}

static void enqueue_raw(struct sim_stream *s, sim_task_fn fn, void *arg)
{
	struct task *t = calloc(1, sizeof *t);
	if (t == NULL)
		abort();
	t->fn = fn;
	t->arg = arg;
	pthread_mutex_lock(&s->mu);
	if (s->tail != NULL)
		s->tail->next = t;
	else
		s->head = t;
	s->tail = t;
	s->enqueued++;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->mu);
}

static void unreference(struct sim_event *e)
{
	if (--e->references == 0)
		free(e);
}

struct marker {
	struct sim_event *event;
	uint64_t number;
};

static struct marker *new_marker(struct sim_event *e, uint64_t number)
{
	struct marker *m = malloc(sizeof *m);
	if (m == NULL)
		abort();
	m->event = e;
	m->number = number;
	return m;
}

static void reach(struct sim_stream *s, void *arg)
{
	struct marker *m = arg;
	pthread_mutex_lock(&events_mu);
	m->event->reached = m->number;
	m->event->clock_ns = s->clock_ns;
	pthread_cond_broadcast(&events_cv);
	unreference(m->event);
	pthread_mutex_unlock(&events_mu);
	free(m);
}

static void await(struct sim_stream *s, void *arg)
{
	struct marker *m = arg;
	pthread_mutex_lock(&events_mu);
	while (m->event->reached < m->number)
		pthread_cond_wait(&events_cv, &events_mu);
	if (m->event->clock_ns > s->clock_ns)
		s->clock_ns = m->event->clock_ns;
	unreference(m->event);
	pthread_mutex_unlock(&events_mu);
	free(m);
}

static void record(struct sim_event *e, struct sim_stream *s)
{
	pthread_mutex_lock(&events_mu);
	e->recorded++;
	e->references++;
	struct marker *m = new_marker(e, e->recorded);
	pthread_mutex_unlock(&events_mu);
	enqueue_raw(s, reach, m);
}

static void wait_for(struct sim_stream *s, struct sim_event *e)
{
	pthread_mutex_lock(&events_mu);
	struct marker *m = NULL;
	if (e->recorded > 0) {
		e->references++;
		m = new_marker(e, e->recorded);
	}
	pthread_mutex_unlock(&events_mu);
	if (m != NULL)
		enqueue_raw(s, await, m);
}

static struct sim_event *new_event(bool timing)
{
	struct sim_event *e = calloc(1, sizeof *e);
	if (e != NULL) {
		e->references = 1;
		e->timing = timing;
	}
	return e;
}

/* follow makes later work of s wait for all work of o so far. */
static void follow(struct sim_stream *s, struct sim_stream *o)
{
	struct sim_event *e = new_event(false);
	if (e == NULL)
		abort();
	record(e, o);
	wait_for(s, e);
	pthread_mutex_lock(&events_mu);
	unreference(e);
	pthread_mutex_unlock(&events_mu);
}

static bool busy(struct sim_stream *s)
{
	pthread_mutex_lock(&s->mu);
	bool b = s->done != s->enqueued;
	pthread_mutex_unlock(&s->mu);
	return b;
}

/* order_with_null keeps HIP's rule: the null stream and the blocking streams of a device wait for each other. */
static void order_with_null(struct sim_stream *s)
{
	pthread_mutex_lock(&streams_mu);
	struct sim_stream *null = null_streams[s->device];
	if (s == null) {
		for (struct sim_stream *o = streams; o != NULL; o = o->next) {
			if (!o->blocking || o->device != s->device)
				continue;
			if (busy(o))
				follow(s, o);
		}
	} else if (s->blocking && null != NULL && busy(null)) {
		follow(s, null);
	}
	pthread_mutex_unlock(&streams_mu);
}

void simrocm_enqueue(struct sim_stream *s, sim_task_fn fn, void *arg)
{
	order_with_null(s);
	enqueue_raw(s, fn, arg);
}

int64_t simrocm_clock_ns(const struct sim_stream *s) { return s->clock_ns; }
void simrocm_set_clock_ns(struct sim_stream *s, int64_t ns) { s->clock_ns = ns; }

void simrocm_stream_wait(struct sim_stream *s)
{
	pthread_mutex_lock(&s->mu);
	uint64_t target = s->enqueued;
	while (s->done < target)
		pthread_cond_wait(&s->idle, &s->mu);
	pthread_mutex_unlock(&s->mu);
}

void sim_device_wait(int device)
{
	pthread_mutex_lock(&streams_mu);
	struct sim_stream *list[256];
	int n = 0;
	for (struct sim_stream *s = streams; s != NULL && n < 256; s = s->next)
		if (s->device == device)
			list[n++] = s;
	pthread_mutex_unlock(&streams_mu);
	for (int i = 0; i < n; i++)
		simrocm_stream_wait(list[i]);
}

SIM_API int hipStreamCreateWithFlags(void **out, unsigned flags)
{
	if (out == NULL || flags > 1)
		return sim_error(hipErrorInvalidValue);
	if (simrocm_config()->visible_count == 0)
		return sim_error(hipErrorNoDevice);
	pthread_mutex_lock(&streams_mu);
	*out = new_stream(simrocm_current_device(), flags == 0);
	pthread_mutex_unlock(&streams_mu);
	return sim_error(*out != NULL ? hipSuccess : hipErrorOutOfMemory);
}

SIM_API int hipStreamCreate(void **out) { return hipStreamCreateWithFlags(out, 0); }

SIM_API int hipStreamSynchronize(void *stream)
{
	struct sim_stream *s = simrocm_stream(stream);
	if (stream == NULL)
		order_with_null(s);
	simrocm_stream_wait(s);
	return sim_error(hipSuccess);
}

SIM_API int hipStreamQuery(void *stream)
{
	return busy(simrocm_stream(stream)) ? hipErrorNotReady : sim_error(hipSuccess);
}

SIM_API int hipStreamWaitEvent(void *stream, void *event, unsigned flags)
{
	if (event == NULL || flags != 0)
		return sim_error(hipErrorInvalidValue);
	wait_for(simrocm_stream(stream), event);
	return sim_error(hipSuccess);
}

SIM_API int hipStreamDestroy(void *stream)
{
	struct sim_stream *s = stream;
	if (s == NULL)
		return sim_error(hipErrorInvalidHandle);
	pthread_mutex_lock(&streams_mu);
	for (struct sim_stream **p = &streams; *p != NULL; p = &(*p)->next)
		if (*p == s) {
			*p = s->next;
			break;
		}
	pthread_mutex_unlock(&streams_mu);
	pthread_mutex_lock(&s->mu);
	s->closing = true; /* the worker finishes what is queued and frees the stream, as HIP does */
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->mu);
	return sim_error(hipSuccess);
}

SIM_API int hipEventCreateWithFlags(void **out, unsigned flags)
{
	if (out == NULL)
		return sim_error(hipErrorInvalidValue);
	*out = new_event((flags & 2) == 0); /* 2 = hipEventDisableTiming */
	return sim_error(*out != NULL ? hipSuccess : hipErrorOutOfMemory);
}

SIM_API int hipEventCreate(void **out) { return hipEventCreateWithFlags(out, 0); }

SIM_API int hipEventRecord(void *event, void *stream)
{
	if (event == NULL)
		return sim_error(hipErrorInvalidHandle);
	struct sim_stream *s = simrocm_stream(stream);
	order_with_null(s);
	record(event, s);
	return sim_error(hipSuccess);
}

SIM_API int hipEventQuery(void *event)
{
	struct sim_event *e = event;
	if (e == NULL)
		return sim_error(hipErrorInvalidHandle);
	pthread_mutex_lock(&events_mu);
	bool ready = e->reached >= e->recorded;
	pthread_mutex_unlock(&events_mu);
	return ready ? hipSuccess : hipErrorNotReady;
}

SIM_API int hipEventSynchronize(void *event)
{
	struct sim_event *e = event;
	if (e == NULL)
		return sim_error(hipErrorInvalidHandle);
	pthread_mutex_lock(&events_mu);
	uint64_t target = e->recorded;
	while (e->reached < target)
		pthread_cond_wait(&events_cv, &events_mu);
	pthread_mutex_unlock(&events_mu);
	return sim_error(hipSuccess);
}

SIM_API int hipEventElapsedTime(float *ms, void *start, void *stop)
{
	struct sim_event *a = start, *b = stop;
	if (ms == NULL)
		return sim_error(hipErrorInvalidValue);
	if (a == NULL || b == NULL)
		return sim_error(hipErrorInvalidHandle);
	int rc = hipSuccess;
	pthread_mutex_lock(&events_mu);
	if (a->recorded == 0 || b->recorded == 0 || !a->timing || !b->timing)
		rc = hipErrorInvalidHandle;
	else if (a->reached < a->recorded || b->reached < b->recorded)
		rc = hipErrorNotReady;
	else
		*ms = (float)((double)(b->clock_ns - a->clock_ns) / 1e6);
	pthread_mutex_unlock(&events_mu);
	return sim_error(rc);
}

SIM_API int hipEventDestroy(void *event)
{
	if (event == NULL)
		return sim_error(hipErrorInvalidHandle);
	pthread_mutex_lock(&events_mu);
	unreference(event);
	pthread_mutex_unlock(&events_mu);
	return sim_error(hipSuccess);
}
