/* ras.c - the RAS service, as every process with a communicator has it: a thread that listens on NCCL_RAS_ADDR (localhost
 * :28028), shared with the node's other processes by SO_REUSEPORT, and answers in text (rccl src/ras/client_support.cc).
 * It knows what stands in the shared segments of this process's communicators. As in the library it counts operations
 * where they are launched, of the five collectives that have a number there, and none that DDA or low precision takes.
 * Left out: processes that are given up as dead after a minute, gathering that takes time, errors after initialisation. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rccl.h"

enum { NOCOMM = 1, INIT = 2, RUNNING = 4, FINALIZE = 8, ABORT = 16 };
enum { MISMATCH = 1, FAILED = 2, INCOMPLETE = 4 };

static const char *const status_names[] = {"NOCOMM", "INIT", "RUNNING", "FINALIZE", "ABORT"};
static const char *const error_names[] = {"OK", "MISMATCH", "ERROR", "ERROR,MISMATCH", "INCOMPLETE", "INCOMPLETE,MISMATCH",
	"INCOMPLETE,ERROR", "INCOMPLETE,ERROR,MISMATCH"};

#define MAX_COMMS 64
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct comm *comms[MAX_COMMS];
static int listening = -1;

/* A lock on a byte beyond the file's end says that the rank's process lives, also to processes of other PID namespaces. */
static struct flock life_of(int rank)
{
	return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ((off_t)1 << 40) + rank, .l_len = 1};
}

static bool lives(const struct comm *c, int rank)
{
	struct flock l = life_of(rank);
	if (rank == c->rank)
		return true;
	return fcntl(c->segment_fd, F_OFD_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

void ras_launched(const struct op *op)
{
	static const int numbers[] = {[COLL_ALLREDUCE] = 4, [COLL_REDUCE] = 1, [COLL_REDUCESCATTER] = 3, [COLL_ALLGATHER] = 2,
		[COLL_BROADCAST] = 0, [COLL_ALLTOALL] = -1};
	if (op->path == PATH_STANDARD && numbers[op->coll] >= 0)
		atomic_fetch_add(&op->comm->infos[op->comm->rank].launched[numbers[op->coll]], 1);
}

void ras_flag(struct comm *c, uint32_t flag)
{
	if (c->infos != NULL)
		atomic_fetch_or(&c->infos[c->rank].flags, flag);
}

/* collective_name is what the imitated build prints. RCCLX's table of names is in another order than the numbers that
 * index it (src/init.cc ncclFuncStr), so an AllReduce is called Broadcast. */
static const char *collective_name(int number)
{
	static const char *const right[RAS_COLLECTIVES] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};
	static const char *const dev[RAS_COLLECTIVES] = {"AllGather", "AllReduce", "AlltoAllPivot", "AllToAllGda", "Broadcast"};
	static const char *const stable[RAS_COLLECTIVES] = {"AllGather", "AllReduce", "AllToAllPivot", "Broadcast", "Reduce"};
	switch (simrocm_config()->flavor) {
	case FLAVOR_RCCLX_DEV: return dev[number];
	case FLAVOR_RCCLX_STABLE: return stable[number];
	default: return right[number];
	}
}

/* found is what one communicator looks like at this moment. Ranks that do not answer have status 0. */
struct found {
	const struct comm *comm;
	int status[MAX_RANKS], missing, statuses, errors;
	uint64_t counts[RAS_COLLECTIVES][MAX_RANKS];
	bool differ[RAS_COLLECTIVES];
};

static void look_at(struct found *f, const struct comm *c)
{
	int first = -1;
	f->comm = c;
	for (int r = 0; r < c->ranks; r++) {
		const struct rank_info *i = &c->infos[r];
		uint32_t flags = atomic_load(&i->flags);
		int state = atomic_load(&i->init_state);
		if ((flags & RAS_GONE) != 0) {
			f->status[r] = NOCOMM;
		} else if (!lives(c, r)) {
			f->missing++;
			f->errors |= INCOMPLETE;
			continue;
		} else if ((flags & RAS_ABORT) != 0) {
			f->status[r] = ABORT;
		} else if ((flags & (RAS_FINALIZE | RAS_DESTROY)) != 0) {
			f->status[r] = FINALIZE;
		} else {
			f->status[r] = state == ncclSuccess ? RUNNING : INIT;
		}
		f->statuses |= f->status[r];
		if (f->status[r] == NOCOMM)
			continue;
		if (state != ncclSuccess && state != ncclInProgress)
			f->errors |= FAILED;
		first = first < 0 ? r : first;
		for (int k = 0; k < RAS_COLLECTIVES; k++) {
			f->counts[k][r] = atomic_load(&i->launched[k]);
			f->differ[k] = f->differ[k] || f->counts[k][r] != f->counts[k][first];
		}
	}
	for (int k = 0; k < RAS_COLLECTIVES; k++)
		f->errors |= f->differ[k] ? MISMATCH : 0;
	if (__builtin_popcount((unsigned)f->statuses) > 1 || f->statuses == NOCOMM)
		f->errors |= MISMATCH;
}

static int highest(int bits) { return bits == 0 ? 1 : 31 - __builtin_clz((unsigned)bits); }

static int different(const struct found *f, bool (*same)(const struct rank_info *, const struct rank_info *), bool missing_only)
{
	int n = 0;
	for (int r = 0; r < f->comm->ranks; r++) {
		bool seen = missing_only && f->status[r] != 0;
		for (int q = 0; q < r && !seen; q++)
			seen = (!missing_only || f->status[q] == 0) && same(&f->comm->infos[q], &f->comm->infos[r]);
		n += !seen;
	}
	return n;
}

static bool same_host(const struct rank_info *a, const struct rank_info *b) { return strcmp(a->host, b->host) == 0; }
static bool same_process(const struct rank_info *a, const struct rank_info *b) { return a->process == b->process; }

static void where(FILE *out, const struct found *f, int rank)
{
	const struct rank_info *i = &f->comm->infos[rank];
	fprintf(out, "GPU %d managed by process %d on node 127.0.0.1\n", i->device, i->pid);
}

static bool is_listed(int count, int ranks, bool verbose)
{
	return count == 1 || (verbose ? count * 2 < ranks : count <= 10 && count * 4 <= ranks);
}

/* print_classes prints the ranks by value, the commonest first. said prints what a rank with the value is. */
static void print_classes(FILE *out, const struct found *f, const uint64_t *values, bool verbose, void (*said)(FILE *, int, uint64_t))
{
	int n = f->comm->ranks;
	bool done[MAX_RANKS] = {false};
	for (;;) {
		int best = -1, most = 0;
		for (int r = 0; r < n; r++) {
			int count = 0;
			for (int q = 0; q < n; q++)
				count += f->status[q] != 0 && values[q] == values[r];
			if (f->status[r] == 0 || done[r] || count < most || (count == most && best >= 0 && values[r] <= values[best]))
				continue;
			best = r;
			most = count;
		}
		if (best < 0)
			return;
		if (most > 1) {
			fprintf(out, "  %d ranks", most);
			said(out, most, values[best]);
			fputc('\n', out);
		}
		for (int r = 0; r < n; r++) {
			if (f->status[r] == 0 || values[r] != values[best])
				continue;
			done[r] = true;
			if (!is_listed(most, n, verbose))
				continue;
			fprintf(out, "  Rank %d", r);
			if (most == 1)
				said(out, most, values[best]);
			fprintf(out, " -- ");
			where(out, f, r);
		}
	}
}

static void say_status(FILE *out, int count, uint64_t v) { fprintf(out, " %s status %s", count > 1 ? "have" : "has", status_names[highest((int)v)]); }

static void say_count(FILE *out, int count, uint64_t v)
{
	if (v > 0)
		fprintf(out, " %s launched up to operation %llu", count > 1 ? "have" : "has", (unsigned long long)v);
	else
		fprintf(out, " %s not launched any operations", count > 1 ? "have" : "has");
}

static void say_error(FILE *out, int count, uint64_t v)
{
	static const char *const names[] = {[ncclUnhandledCudaError] = "Unhandled CUDA error", [ncclSystemError] = "System error",
		[ncclInternalError] = "Internal error", [ncclInvalidArgument] = "Invalid argument", [ncclInvalidUsage] = "Invalid usage",
		[ncclRemoteError] = "Remote process error"};
	(void)count;
	fprintf(out, " reported %s", v < sizeof names / sizeof names[0] && names[v] != NULL ? names[v] : "Unexpected error");
}

static uint64_t hash(const struct comm *c)
{
	uint64_t h = 0xcbf29ce484222325u;
	for (const char *p = c->name; *p != 0; p++)
		h = (h ^ (uint8_t)*p) * 0x100000001b3u;
	return h;
}

static void print_errors(FILE *out, const struct found *f, int number, bool verbose)
{
	const struct comm *c = f->comm;
	if (f->missing > 0) {
		fprintf(out, "#%d-0 (%016llx) INCOMPLETE\n  Missing communicator data from %d rank%s\n", number,
			(unsigned long long)hash(c), f->missing, f->missing > 1 ? "s" : "");
		for (int r = 0; r < c->ranks; r++)
			if (f->status[r] == 0 && (verbose || f->missing <= 10)) {
				fprintf(out, "  Rank %d -- ", r);
				where(out, f, r);
			}
		fputc('\n', out);
	}
	if ((f->errors & FAILED) != 0) {
		struct found failed = *f;
		uint64_t values[MAX_RANKS];
		int count = 0;
		for (int r = 0; r < c->ranks; r++) {
			values[r] = (uint64_t)atomic_load(&c->infos[r].init_state);
			if (failed.status[r] == NOCOMM || values[r] == ncclSuccess || values[r] == ncclInProgress)
				failed.status[r] = 0;
			count += failed.status[r] != 0;
		}
		fprintf(out, "#%d-0 (%016llx) ERROR\n  Initialization error%s on %d rank%s\n", number, (unsigned long long)hash(c),
			count > 1 ? "s" : "", count, count > 1 ? "s" : "");
		print_classes(out, &failed, values, verbose, say_error);
		fputc('\n', out);
	}
}

static void print_warnings(FILE *out, const struct found *f, int number, bool verbose)
{
	if ((f->errors & MISMATCH) == 0)
		return;
	fprintf(out, "#%d-0 (%016llx) MISMATCH\n", number, (unsigned long long)hash(f->comm));
	if (__builtin_popcount((unsigned)f->statuses) > 1) {
		uint64_t values[MAX_RANKS];
		for (int r = 0; r < f->comm->ranks; r++)
			values[r] = (uint64_t)f->status[r];
		fprintf(out, "  Communicator ranks have different status\n");
		print_classes(out, f, values, verbose, say_status);
	}
	for (int k = 0; k < RAS_COLLECTIVES; k++) {
		if (!f->differ[k])
			continue;
		struct found with = *f;
		for (int r = 0; r < f->comm->ranks; r++)
			if (with.status[r] == NOCOMM)
				with.status[r] = 0;
		fprintf(out, "  Communicator ranks have different %s operation counts\n", collective_name(k));
		print_classes(out, &with, f->counts[k], verbose, say_count);
		fputc('\n', out);
	}
}

static void print_summary(FILE *out, const struct found *f)
{
	int processes = f != NULL ? different(f, same_process, false) : 0, nodes = f != NULL ? different(f, same_host, false) : 0;
	int ranks = f != NULL ? f->comm->ranks : 0;
	fprintf(out, "Job summary\n===========\n\n");
	if (nodes > 0 && (processes % nodes != 0 || ranks % processes != 0))
		fprintf(out, "  Nodes  Processes         GPUs\n(total)    (total)      (total)\n%7d  %9d  %11d\n", nodes, processes, ranks);
	else
		fprintf(out, "  Nodes  Processes         GPUs  Processes     GPUs\n(total)   per node  per process    (total)  (total)\n"
			"%7d  %9d  %11d  %9d  %7d\n", nodes, nodes > 0 ? processes / nodes : 0, processes > 0 ? ranks / processes : 0, processes, ranks);
}

/* print_report is the answer to STATUS; the caller holds mu. */
static void print_report(FILE *out, bool verbose)
{
	int v = version_code(), n = 0, hip = simrocm_config()->hip_runtime_version;
	static struct found found[MAX_COMMS];
	for (int i = 0; i < MAX_COMMS; i++) {
		/* A communicator shows once its ranks know one another (peerInfoValid). */
		if (comms[i] == NULL || atomic_load(&comms[i]->segment->attached) < (uint32_t)comms[i]->ranks)
			continue;
		memset(&found[n], 0, sizeof found[n]);
		look_at(&found[n++], comms[i]);
	}
	fprintf(out, "RCCL version %d.%d.%d-SIMULATED compiled with ROCm %s\nHIP runtime version %d, amdgpu driver version %d\n\n",
		v / 10000, v / 100 % 100, v % 100, simrocm_config()->rocm_version, hip, hip);
	print_summary(out, n > 0 ? &found[0] : NULL);
	fprintf(out, "\nCommunicators... (0.000s)\n=============\n\n");
	if (n > 0)
		fprintf(out, "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
			"    #  in group  per comm  per node  per comm  in group\n");
	else
		fprintf(out, "No communicator data collected!\n");
	for (int i = 0; i < n; i++) {
		const struct comm *c = found[i].comm;
		fprintf(out, "%5d  %8d  %8d  %8d  %8d  %8d  %8s  %6s\n", i, 1, c->topology.nodes > 0 ? c->topology.nodes : 1, c->ranks,
			c->ranks, c->ranks - found[i].missing, status_names[highest(found[i].statuses)], error_names[found[i].errors]);
	}
	fprintf(out, "\nErrors\n======\n\n");
	int missing = n > 0 ? different(&found[0], same_process, true) : 0;
	if (missing > 0) {
		fprintf(out, "INCOMPLETE\n  Missing communicator data from %d job process%s\n", missing, missing > 1 ? "es" : "");
		for (int r = 0; r < found[0].comm->ranks; r++)
			if (found[0].status[r] == 0)
				fprintf(out, "  Process %d on node 127.0.0.1 managing GPU %d\n", found[0].comm->infos[r].pid, found[0].comm->infos[r].device);
		fputc('\n', out);
	}
	for (int i = 0; i < n; i++)
		print_errors(out, &found[i], i, verbose);
	fprintf(out, "Warnings\n========\n\n");
	for (int i = 0; i < n; i++)
		print_warnings(out, &found[i], i, verbose);
}

static void answer_status(FILE *conn, bool verbose)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	if (out == NULL)
		return;
	pthread_mutex_lock(&mu);
	print_report(out, verbose);
	pthread_mutex_unlock(&mu);
	fclose(out);
	fwrite(text, 1, size, conn);
	free(text);
}

static void *converse(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char line[256];
	FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
	while (in != NULL && out != NULL && fgets(line, sizeof line, in) != NULL) {
		line[strcspn(line, "\r\n")] = 0;
		bool verbose = strcasecmp(line, "verbose status") == 0;
		if (verbose || strcasecmp(line, "status") == 0) {
			answer_status(out, verbose);
			break;
		}
		if (strncasecmp(line, "client protocol ", 16) == 0)
			fprintf(out, "SERVER PROTOCOL 2\n");
		else if (strncasecmp(line, "timeout ", 8) == 0)
			fprintf(out, strspn(line + 8, "0123456789") == strlen(line + 8) ? "OK\n" : "ERROR: Invalid timeout value %s\n", line + 8);
		else
			fprintf(out, "ERROR: Unknown command %s\n", line);
		fflush(out);
	}
	if (out != NULL)
		fclose(out);
	if (in != NULL)
		fclose(in);
	return NULL;
}

static void *serve(void *arg)
{
	(void)arg;
	for (;;) {
		int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		const struct timeval limit = {60, 0};
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
		if (simrocm_thread(converse, (void *)(intptr_t)fd) != 0)
			close(fd);
	}
	return NULL;
}

/* listen_at makes the socket of host:port; -1 where it cannot. */
static int listen_at(const char *address)
{
	char host[256];
	const char *colon = strrchr(address, ':');
	if (colon == NULL || (size_t)(colon - address) >= sizeof host)
		return -1;
	memcpy(host, address, (size_t)(colon - address));
	host[colon - address] = 0;
	const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
		return -1;
	const int one = 1;
	int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) != 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0 ||
	    listen(fd, 128) != 0)) {
		close(fd);
		fd = -1;
	}
	freeaddrinfo(found);
	return fd;
}

/* ras_join makes a communicator known, whose segment is mapped; the first one of a process starts the service. */
void ras_join(struct comm *c)
{
	struct rank_info *i = &c->infos[c->rank];
	struct flock life = life_of(c->rank);
	i->pid = getpid();
	i->device = c->device;
	atomic_store(&i->init_state, ncclInProgress);
	fcntl(c->segment_fd, F_OFD_SETLK, &life);
	if (param("NCCL_RAS_ENABLE", 1) != 1)
		return;
	pthread_mutex_lock(&mu);
	if (listening == -1) {
		const char *address = getenv("NCCL_RAS_ADDR");
		if (address == NULL)
			address = "localhost:28028";
		listening = listen_at(address);
		if (listening >= 0 && simrocm_thread(serve, NULL) == 0)
			info(LOG_INIT, "RAS client listening socket at %s", address);
		else
			info(LOG_INIT, "RAS failed to establish a client listening socket at %s", address);
		if (listening < 0)
			listening = -2; /* once is enough */
	}
	for (int k = 0; k < MAX_COMMS; k++)
		if (comms[k] == NULL) {
			comms[k] = c;
			break;
		}
	pthread_mutex_unlock(&mu);
}

/* ras_leave forgets a communicator before its segment goes. */
void ras_leave(struct comm *c)
{
	pthread_mutex_lock(&mu);
	for (int k = 0; k < MAX_COMMS; k++)
		if (comms[k] == c)
			comms[k] = NULL;
	pthread_mutex_unlock(&mu);
	ras_flag(c, RAS_GONE);
}
