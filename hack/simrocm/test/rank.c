/* rank.c - one rank of a test of the simulated libraries, against their public ABI only. Ranks find each other through
 * NCCL_COMM_ID, or through TEST_ID, a unique id in hexadecimal as another rank printed it. Usage: rank RANK RANKS STEP...   Prints one line a step; the Go test judges. Steps:
 *   COLL:DTYPE:BYTES:ITERATIONS   COLL ar rs ag a2a a2av bc rd sr (a ring of Send/Recv), DTYPE f32 f16 bf16 f64 i32
 *                                 e4m3 e5m2 (FNUZ if TEST_FNUZ is set), BYTES of the larger buffer
 *   pair:A-B:BYTES:ITERATIONS     A and B exchange
 *   hold                          prints "ready" and sleeps until it is killed
 *   deadline:MS                   later steps give up after that time and exit with 3 (default 60000)
 *   version                       says what ncclGetVersion answers
 *   symbol:NAME                   says whether dlsym finds it in librccl.so.1
 *   code:DTYPE:HEX                sums elements of that byte and prints the byte that comes out
 *   post:DTYPE:BYTES              starts an AllReduce and does not wait
 *   abort                         aborts the communicator and exits */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct id {
	char bytes[128];
};
int hipSetDevice(int);
int hipMalloc(void **, size_t);
int hipFree(void *);
int hipMemcpy(void *, const void *, size_t, int);
int hipMemset(void *, int, size_t);
int hipMemGetInfo(size_t *, size_t *);
int hipStreamCreateWithFlags(void **, unsigned);
int hipStreamDestroy(void *);
int hipEventCreate(void **);
int hipEventRecord(void *, void *);
int hipEventQuery(void *);
int hipEventElapsedTime(float *, void *, void *);
int hipEventDestroy(void *);
int ncclGetVersion(int *);
int ncclGetUniqueId(struct id *);
int ncclCommInitRank(void **, int, struct id, int);
int ncclCommDestroy(void *);
int ncclCommAbort(void *);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
int ncclReduce(const void *, void *, size_t, int, int, int, void *, void *);
int ncclReduceScatter(const void *, void *, size_t, int, int, void *, void *);
int ncclAllGather(const void *, void *, size_t, int, void *, void *);
int ncclBroadcast(const void *, void *, size_t, int, int, void *, void *);
int ncclAlltoAll(const void *, void *, size_t, int, void *, void *);
int ncclAlltoAllv(const void *, const size_t *, const size_t *, void *, const size_t *, const size_t *, int, void *, void *);
int ncclSend(const void *, size_t, int, int, void *, void *);
int ncclRecv(void *, size_t, int, int, void *, void *);
const char *ncclGetLastError(void *);
const char *ncclGetErrorString(int);

enum { I32 = 2, F16 = 6, F32 = 7, F64 = 8, BF16 = 9, E4M3 = 10, E5M2 = 11 };

static int rank, ranks;
static long deadline_ms = 60000;
static void *comm, *stream;

static void check(int rc, const char *what)
{
	if (rc == 0)
		return;
	printf("error rank=%d call=%s code=%d text=%s\n", rank, what, rc, what[0] == 'n' ? ncclGetLastError(NULL) : "");
	exit(2);
}

/* Exact in every wider type, also summed over 8 ranks; needs 6 bits, so an 8-bit float cannot hold it: that gets -1 to 1. */
#define PERIOD 61
static bool narrow;
static double value(int r, size_t i)
{
	size_t k = (i * 7 + (size_t)r * 13) % PERIOD;
	return narrow ? (double)(k % 3) - 1 : ((double)k - 30) / 8;
}

static size_t width(int dtype) { return dtype == F64 ? 8 : dtype == F16 || dtype == BF16 ? 2 : dtype >= E4M3 ? 1 : 4; }

static uint8_t fp8(int dtype, double v)
{
	int bias = (dtype == E4M3 ? 7 : 15) + (getenv("TEST_FNUZ") != NULL), bits = dtype == E4M3 ? 3 : 2, exponent;
	if (v == 0)
		return 0;
	double fraction = frexp(fabs(v), &exponent);
	int mantissa = (int)((fraction * 2 - 1) * (1 << bits));
	return (uint8_t)((v < 0) << 7 | (exponent - 1 + bias) << bits | mantissa);
}

static double from_fp8(int dtype, uint8_t code)
{
	int bias = (dtype == E4M3 ? 7 : 15) + (getenv("TEST_FNUZ") != NULL), bits = dtype == E4M3 ? 3 : 2;
	double v = ldexp(1 + (double)(code & ((1 << bits) - 1)) / (1 << bits), ((code & 0x7f) >> bits) - bias);
	if (code == 0)
		return 0;
	return code > 0x7f ? -v : v;
}

static void store(int dtype, void *base, size_t i, double v)
{
	float f = (float)v;
	uint32_t u;
	memcpy(&u, &f, 4);
	switch (dtype) {
	case I32: ((int32_t *)base)[i] = (int32_t)(v * 8); break;
	case F32: ((float *)base)[i] = f; break;
	case F64: ((double *)base)[i] = v; break;
	case F16: ((_Float16 *)base)[i] = (_Float16)f; break;
	case E4M3:
	case E5M2: ((uint8_t *)base)[i] = fp8(dtype, v); break;
	default: ((uint16_t *)base)[i] = (uint16_t)(u >> 16);
	}
}

static double load(int dtype, const void *base, size_t i)
{
	uint32_t u;
	float f;
	switch (dtype) {
	case I32: return ((const int32_t *)base)[i] / 8.0;
	case F32: return ((const float *)base)[i];
	case F64: return ((const double *)base)[i];
	case F16: return (double)((const _Float16 *)base)[i];
	case E4M3:
	case E5M2: return from_fp8(dtype, ((const uint8_t *)base)[i]);
	default:
		u = (uint32_t)((const uint16_t *)base)[i] << 16;
		memcpy(&f, &u, 4);
		return f;
	}
}

static long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* finish waits for an event and gives up at the deadline, as an agent has to. */
static void finish(void *event, const char *step)
{
	long end = now_ms() + deadline_ms;
	int rc;
	while ((rc = hipEventQuery(event)) == 600) {
		if (now_ms() > end) {
			printf("notready rank=%d step=%s\n", rank, step);
			fflush(stdout);
			_exit(3);
		}
		usleep(200);
	}
	check(rc, "hipEventQuery");
}

static double sum(size_t i)
{
	static double sums[2][PERIOD];
	static bool known[2];
	for (int k = 0; !known[narrow] && k < PERIOD; k++)
		for (int r = 0; r < ranks; r++)
			sums[narrow][k] += value(r, (size_t)k);
	known[narrow] = true;
	return sums[narrow][i % PERIOD];
}

/* part is what a rank sends to a peer in a2av: uneven, and the same in both directions, so that every rank sends and
 * receives ranks * block. */
static size_t part(int r, int peer, size_t block)
{
	int k = (r + peer) % ranks;
	return k == 0 ? block + block / 4 : k == 1 ? block - block / 4 : block;
}

static size_t part_at(int r, int peer, size_t block)
{
	size_t at = 0;
	for (int p = 0; p < peer; p++)
		at += part(r, p, block);
	return at;
}

static double expected_of_parts(size_t i, size_t block)
{
	int r = 0;
	for (; i >= part(rank, r, block); r++)
		i -= part(rank, r, block);
	return value(r, part_at(r, rank, block) + i);
}

static double expected(const char *coll, size_t i, size_t block)
{
	if (strcmp(coll, "ar") == 0)
		return sum(i);
	if (strcmp(coll, "rd") == 0)
		return rank == 0 ? sum(i) : 0;
	if (strcmp(coll, "rs") == 0)
		return sum((size_t)rank * block + i);
	if (strcmp(coll, "ag") == 0)
		return value((int)(i / block), i % block);
	if (strcmp(coll, "bc") == 0)
		return value(0, i);
	if (strcmp(coll, "sr") == 0)
		return value((rank + ranks - 1) % ranks, i);
	if (strcmp(coll, "a2av") == 0)
		return expected_of_parts(i, block);
	return value((int)(i / block), (size_t)rank * block + i % block);
}

static void call(const char *coll, const void *send, void *recv, size_t count, size_t block, int dtype)
{
	if (strcmp(coll, "ar") == 0)
		check(ncclAllReduce(send, recv, count, dtype, 0, comm, stream), "ncclAllReduce");
	else if (strcmp(coll, "rs") == 0)
		check(ncclReduceScatter(send, recv, block, dtype, 0, comm, stream), "ncclReduceScatter");
	else if (strcmp(coll, "ag") == 0)
		check(ncclAllGather(send, recv, block, dtype, comm, stream), "ncclAllGather");
	else if (strcmp(coll, "bc") == 0)
		check(ncclBroadcast(send, recv, count, dtype, 0, comm, stream), "ncclBroadcast");
	else if (strcmp(coll, "rd") == 0)
		check(ncclReduce(send, recv, count, dtype, 0, 0, comm, stream), "ncclReduce");
	else if (strcmp(coll, "sr") == 0) {
		ncclGroupStart();
		check(ncclSend(send, count, dtype, (rank + 1) % ranks, comm, stream), "ncclSend");
		check(ncclRecv(recv, count, dtype, (rank + ranks - 1) % ranks, comm, stream), "ncclRecv");
		check(ncclGroupEnd(), "ncclGroupEnd");
	} else if (strcmp(coll, "a2av") == 0) {
		size_t counts[64], at[64];
		for (int r = 0; r < ranks; r++) {
			counts[r] = part(rank, r, block);
			at[r] = part_at(rank, r, block);
		}
		check(ncclAlltoAllv(send, counts, at, recv, counts, at, dtype, comm, stream), "ncclAlltoAllv");
	} else
		check(ncclAlltoAll(send, recv, block, dtype, comm, stream), "ncclAlltoAll");
}

static void *filled(int dtype, size_t count, void **device)
{
	char *host = malloc(count * width(dtype));
	for (size_t i = 0; i < count; i++)
		store(dtype, host, i, value(rank, i));
	check(hipMalloc(device, count * width(dtype)), "hipMalloc");
	check(hipMemcpy(*device, host, count * width(dtype), 1), "hipMemcpy");
	return host;
}

static void collective(const char *step, const char *coll, int dtype, size_t bytes, int iterations)
{
	size_t count = bytes / width(dtype), block = count / (size_t)ranks, wrong = 0;
	narrow = dtype >= E4M3;
	bool small_send = strcmp(coll, "ag") == 0, small_recv = strcmp(coll, "rs") == 0;
	size_t results = small_recv ? block : count;
	void *send, *recv, *begin, *end;
	void *host = filled(dtype, small_send ? block : count, &send);
	check(hipMalloc(&recv, results * width(dtype)), "hipMalloc");
	check(hipMemset(recv, 0, results * width(dtype)), "hipMemset");
	check(hipEventCreate(&begin), "hipEventCreate");
	check(hipEventCreate(&end), "hipEventCreate");
	call(coll, send, recv, count, block, dtype); /* warm-up */
	check(hipEventRecord(begin, stream), "hipEventRecord");
	for (int i = 0; i < iterations; i++)
		call(coll, send, recv, count, block, dtype);
	check(hipEventRecord(end, stream), "hipEventRecord");
	finish(end, step);
	float ms = 0;
	check(hipEventElapsedTime(&ms, begin, end), "hipEventElapsedTime");
	host = realloc(host, results * width(dtype));
	check(hipMemcpy(host, recv, results * width(dtype), 2), "hipMemcpy");
	double worst = 0, largest = 1e-30;
	for (size_t i = 0; i < results; i++) {
		double want = expected(coll, i, block), got = load(dtype, host, i);
		double off = fabs(got - want);
		wrong += !(off <= 1e-6);
		worst = off > worst ? off : worst;
		largest = fabs(want) > largest ? fabs(want) : largest;
	}
	printf("step rank=%d step=%s ns=%.0f wrong=%zu ppm=%.0f\n", rank, step, (double)ms * 1e6 / iterations, wrong,
		worst / largest * 1e6);
	free(host);
	hipFree(send);
	hipFree(recv);
	hipEventDestroy(begin);
	hipEventDestroy(end);
}

static void exchange(const char *step, int a, int b, size_t bytes, int iterations)
{
	if (rank != a && rank != b)
		return;
	int peer = rank == a ? b : a;
	size_t count = bytes / 4, wrong = 0;
	void *send, *recv, *begin, *end;
	float *host = filled(F32, count, &send), ms = 0;
	check(hipMalloc(&recv, bytes), "hipMalloc");
	check(hipEventCreate(&begin), "hipEventCreate");
	check(hipEventCreate(&end), "hipEventCreate");
	for (int i = -1; i < iterations; i++) {
		if (i == 0)
			check(hipEventRecord(begin, stream), "hipEventRecord");
		ncclGroupStart();
		check(ncclSend(send, count, F32, peer, comm, stream), "ncclSend");
		check(ncclRecv(recv, count, F32, peer, comm, stream), "ncclRecv");
		check(ncclGroupEnd(), "ncclGroupEnd");
	}
	check(hipEventRecord(end, stream), "hipEventRecord");
	finish(end, step);
	check(hipEventElapsedTime(&ms, begin, end), "hipEventElapsedTime");
	check(hipMemcpy(host, recv, bytes, 2), "hipMemcpy");
	for (size_t i = 0; i < count; i++)
		wrong += host[i] != (float)value(peer, i);
	printf("step rank=%d step=%s ns=%.0f wrong=%zu ppm=0\n", rank, step, (double)ms * 1e6 / iterations, wrong);
	free(host);
	hipFree(send);
	hipFree(recv);
	hipEventDestroy(begin);
	hipEventDestroy(end);
}

static int dtype_of(const char *name)
{
	if (strcmp(name, "e4m3") == 0 || strcmp(name, "e5m2") == 0)
		return strcmp(name, "e4m3") == 0 ? E4M3 : E5M2;
	return strcmp(name, "f16") == 0 ? F16 : strcmp(name, "bf16") == 0 ? BF16 : strcmp(name, "f64") == 0 ? F64 :
		strcmp(name, "i32") == 0 ? I32 : F32;
}

static void carry_out(const char *step)
{
	char coll[16], dtype[16];
	size_t bytes;
	int a, b, iterations;
	unsigned code;
	if (sscanf(step, "deadline:%ld", &deadline_ms) == 1)
		return;
	if (strcmp(step, "hold") == 0) {
		printf("ready rank=%d\n", rank);
		fflush(stdout);
		for (;;)
			pause();
	}
	if (strcmp(step, "abort") == 0) {
		check(ncclCommAbort(comm), "ncclCommAbort");
		printf("aborted rank=%d\n", rank);
		exit(0);
	}
	if (strcmp(step, "version") == 0) {
		int version = 0;
		check(ncclGetVersion(&version), "ncclGetVersion");
		printf("version code=%d\n", version);
		return;
	}
	if (strncmp(step, "symbol:", 7) == 0) {
		void *library = dlopen("librccl.so.1", RTLD_NOW | RTLD_NOLOAD);
		printf("symbol name=%s found=%d\n", step + 7, library != NULL && dlsym(library, step + 7) != NULL);
		return;
	}
	if (sscanf(step, "post:%15[^:]:%zu", dtype, &bytes) == 2) {
		void *send, *recv;
		free(filled(dtype_of(dtype), bytes / width(dtype_of(dtype)), &send));
		check(hipMalloc(&recv, bytes), "hipMalloc");
		call("ar", send, recv, bytes / width(dtype_of(dtype)), 0, dtype_of(dtype));
		return;
	}
	if (sscanf(step, "code:%15[^:]:%x", dtype, &code) == 2) {
		void *data, *event;
		uint8_t host[16];
		memset(host, (int)code, sizeof host);
		check(hipMalloc(&data, sizeof host), "hipMalloc");
		check(hipMemcpy(data, host, sizeof host, 1), "hipMemcpy");
		call("ar", data, data, sizeof host, 0, dtype_of(dtype));
		check(hipEventCreate(&event), "hipEventCreate");
		check(hipEventRecord(event, stream), "hipEventRecord");
		finish(event, step);
		check(hipMemcpy(host, data, sizeof host, 2), "hipMemcpy");
		printf("code step=%s result=%02x\n", step, host[15]);
		return;
	}
	if (sscanf(step, "pair:%d-%d:%zu:%d", &a, &b, &bytes, &iterations) == 4)
		exchange(step, a, b, bytes, iterations);
	else if (sscanf(step, "%15[^:]:%15[^:]:%zu:%d", coll, dtype, &bytes, &iterations) == 4)
		collective(step, coll, dtype_of(dtype), bytes, iterations);
	else
		check(1, "bad step");
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 64;
	rank = atoi(argv[1]);
	ranks = atoi(argv[2]);
	const char *device = getenv("TEST_DEVICE");
	struct id id;
	size_t before = 0, after = 0, total = 0;
	check(hipSetDevice(device != NULL ? atoi(device) : rank), "hipSetDevice");
	check(hipMemGetInfo(&before, &total), "hipMemGetInfo");
	const char *given = getenv("TEST_ID");
	if (given == NULL)
		check(ncclGetUniqueId(&id), "ncclGetUniqueId");
	for (size_t i = 0; given != NULL && i < sizeof id.bytes; i++) {
		unsigned byte = 0;
		sscanf(given + 2 * i, "%2x", &byte);
		id.bytes[i] = (char)byte;
	}
	printf("joining rank=%d id=", rank);
	for (size_t i = 0; i < sizeof id.bytes; i++)
		printf("%02x", (unsigned char)id.bytes[i]);
	printf("\n");
	fflush(stdout);
	check(ncclCommInitRank(&comm, ranks, id, rank), "ncclCommInitRank");
	check(hipMemGetInfo(&after, &total), "hipMemGetInfo");
	printf("init rank=%d pool=%zu free=%zu\n", rank, before - after, after);
	check(hipStreamCreateWithFlags(&stream, 1), "hipStreamCreate");
	for (int i = 3; i < argc; i++)
		carry_out(argv[i]);
	check(ncclCommDestroy(comm), "ncclCommDestroy");
	hipStreamDestroy(stream);
	printf("done rank=%d\n", rank);
	return 0;
}
