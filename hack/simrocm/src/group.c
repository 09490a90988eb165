/* group.c - ncclGroupStart and ncclGroupEnd of a thread: collectives keep their order; all sends and receives of a
 * communicator become one batch. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rccl.h"

struct init_job {
	struct comm *comm;
	int (*fn)(struct comm *);
	int result;
	bool done;
};

static __thread int depth;
static __thread struct op **ops;
static __thread int op_count, op_capacity;
static __thread struct message *messages;
static __thread int message_count, message_capacity;
static __thread struct init_job *jobs[SIM_MAX_GPUS];
static __thread int job_count;

static pthread_mutex_t jobs_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t jobs_cv = PTHREAD_COND_INITIALIZER;

int group_depth(void) { return depth; }

static uint64_t take_ticket(struct comm *c)
{
	pthread_mutex_lock(&c->mu);
	uint64_t t = c->next_ticket++;
	c->pending++;
	pthread_mutex_unlock(&c->mu);
	return t;
}

/* misbehave is what the faults do to the thread that launches: a straggler comes late, a broken build crashes. It gives
 * how long the stream stood idle meanwhile. */
static int64_t misbehave(const struct comm *c)
{
	int *volatile nowhere = NULL;
	if (has_fault(c, FAULT_SEGFAULT))
		*nowhere = 1;
	if (fault_across(c, FAULT_DIE_ACROSS)) {
		fprintf(stderr, "simulated RCCL: fault die-across: the process on GPU %d ends in an operation over %d nodes\n", c->ordinal,
			c->topology.nodes);
		_exit(1);
	}
	if (!has_fault(c, FAULT_LATE))
		return 0;
	int64_t ms = simrocm_config()->fault_late_ms;
	const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	nanosleep(&t, NULL);
	return ms * 1000000;
}

static void launch(struct op *op)
{
	op->late_ns = misbehave(op->comm);
	ras_launched(op);
	op->ticket = take_ticket(op->comm);
	simrocm_enqueue(op->stream, collective_task, op);
}

static void *grow(void *list, int count, int *capacity, size_t size)
{
	if (count < *capacity)
		return list;
	*capacity = *capacity == 0 ? 16 : *capacity * 2;
	void *more = realloc(list, (size_t)*capacity * size);
	if (more == NULL)
		abort();
	return more;
}

int submit_op(struct op *wanted)
{
	struct op *op = malloc(sizeof *op);
	if (op == NULL)
		return ncclSystemError;
	*op = *wanted;
	if (depth == 0 || launches_inside_group(op->path)) {
		launch(op);
		return ncclSuccess;
	}
	ops = grow(ops, op_count, &op_capacity, sizeof(struct op *));
	ops[op_count++] = op;
	return ncclSuccess;
}

static int flush_messages(void)
{
	for (int first = 0; first < message_count; first++) {
		struct comm *c = messages[first].comm;
		if (c == NULL)
			continue;
		struct batch *b = calloc(1, sizeof *b);
		struct message *list = calloc((size_t)message_count, sizeof *list);
		if (b == NULL || list == NULL) {
			free(b);
			free(list);
			return ncclSystemError;
		}
		*b = (struct batch){.comm = c, .messages = list};
		struct sim_stream *stream = messages[first].stream;
		for (int i = first; i < message_count; i++)
			if (messages[i].comm == c) {
				list[b->count++] = messages[i];
				messages[i].comm = NULL;
			}
		b->late_ns = misbehave(c);
		b->ticket = take_ticket(c);
		simrocm_enqueue(stream, batch_task, b);
	}
	message_count = 0;
	return ncclSuccess;
}

int submit_message(struct message *m)
{
	messages = grow(messages, message_count, &message_capacity, sizeof *messages);
	messages[message_count++] = *m;
	return depth == 0 ? flush_messages() : ncclSuccess;
}

static void *run_job(void *arg)
{
	struct init_job *job = arg;
	int result = job->fn(job->comm);
	pthread_mutex_lock(&jobs_mu);
	job->result = result;
	job->done = true;
	pthread_cond_broadcast(&jobs_cv);
	pthread_mutex_unlock(&jobs_mu);
	return NULL;
}

static void *run_unattended(void *arg)
{
	struct init_job *job = arg;
	job->fn(job->comm);
	free(job);
	return NULL;
}

int submit_init(struct comm *c, int (*fn)(struct comm *))
{
	if (depth == 0 && c->blocking)
		return fn(c);
	if (depth > 0 && job_count == SIM_MAX_GPUS)
		return fail(ncclInvalidUsage, "more than %d communicators in one group", SIM_MAX_GPUS);
	struct init_job *job = calloc(1, sizeof *job);
	if (job == NULL)
		return ncclSystemError;
	job->comm = c;
	job->fn = fn;
	bool attended = depth > 0 && c->blocking;
	if (simrocm_thread(attended ? run_job : run_unattended, job) != 0) {
		free(job);
		return fail(ncclSystemError, "cannot start a thread");
	}
	if (attended) {
		jobs[job_count++] = job;
		return ncclSuccess;
	}
	return ncclInProgress;
}

static int join_jobs(void)
{
	int result = ncclSuccess;
	pthread_mutex_lock(&jobs_mu);
	for (int i = 0; i < job_count; i++) {
		while (!jobs[i]->done)
			pthread_cond_wait(&jobs_cv, &jobs_mu);
		if (jobs[i]->result != ncclSuccess)
			result = jobs[i]->result;
		free(jobs[i]);
	}
	job_count = 0;
	pthread_mutex_unlock(&jobs_mu);
	return result;
}

SIM_API int ncclGroupStart(void)
{
	depth++;
	return ncclSuccess;
}

SIM_API int ncclGroupEnd(void)
{
	if (depth == 0)
		return fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
	if (--depth > 0)
		return ncclSuccess;
	int result = join_jobs();
	for (int i = 0; i < op_count; i++)
		launch(ops[i]);
	op_count = 0;
	int messages_result = flush_messages();
	return result != ncclSuccess ? result : messages_result;
}
