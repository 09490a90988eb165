/* memory.c - device memory is ordinary memory of the process, taken lazily from the kernel and accounted against the
 * size of the simulated GPU. Copies are tasks of a stream. Never read device memory directly: the library would not
 * notice a write, and hardware would not allow it. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "hip.h"

/* Modelled copy rates: PCIe Gen5 x16 with large copies (Azure's node health check demands at least 48 GB/s), HBM3. */
#define HOST_COPY_BASE_NS 12000
#define HOST_COPY_MBPS 52000
#define DEVICE_COPY_BASE_NS 6000
#define DEVICE_COPY_MBPS 2000000
#define CONTEXT_BYTES ((int64_t)256 << 20) /* what a process's own use of a GPU costs before it allocates */

struct allocation {
	char *base;
	size_t bytes, mapped;
	int device;      /* -1: pinned host memory */
	uint64_t generation;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations;
static int count, capacity;
static int64_t used[SIM_MAX_GPUS];
static uint64_t next_generation = 1;

static struct allocation *find(const void *ptr)
{
	const char *p = ptr;
	for (int i = 0; i < count; i++)
		if (p >= allocations[i].base && p < allocations[i].base + allocations[i].bytes)
			return &allocations[i];
	return NULL;
}

uint64_t simrocm_generation(const void *ptr)
{
	pthread_mutex_lock(&mu);
	struct allocation *a = find(ptr);
	uint64_t g = a != NULL && a->device >= 0 ? a->generation : 0;
	pthread_mutex_unlock(&mu);
	return g;
}

void simrocm_written(const void *ptr)
{
	pthread_mutex_lock(&mu);
	struct allocation *a = find(ptr);
	if (a != NULL)
		a->generation = ++next_generation;
	pthread_mutex_unlock(&mu);
}

static int64_t total_bytes(void)
{
	return simrocm_config()->model->memory_bytes / simrocm_config()->partitions;
}

static int64_t free_bytes(int device)
{
	const struct sim_config *c = simrocm_config();
	int64_t limit = total_bytes() - CONTEXT_BYTES;
	if (c->faulty[FAULT_LOW_MEMORY] != 0 && c->fault_memory_mib << 20 < limit)
		limit = c->fault_memory_mib << 20;
	return limit > used[device] ? limit - used[device] : 0;
}

int simrocm_reserve(int device, int64_t bytes)
{
	pthread_mutex_lock(&mu);
	int rc = hipErrorOutOfMemory;
	if (bytes <= free_bytes(device)) {
		used[device] += bytes;
		rc = hipSuccess;
	}
	pthread_mutex_unlock(&mu);
	return rc;
}

void simrocm_unreserve(int device, int64_t bytes)
{
	pthread_mutex_lock(&mu);
	used[device] -= bytes;
	pthread_mutex_unlock(&mu);
}

static int allocate(void **out, size_t bytes, int device)
{
	if (out == NULL)
		return hipErrorInvalidValue;
	*out = NULL;
	if (bytes == 0)
		return hipSuccess;
	size_t mapped = (bytes + 4095) & ~(size_t)4095;
	if (mapped < bytes)
		return hipErrorOutOfMemory;
	if (device >= 0 && simrocm_reserve(device, (int64_t)mapped) != hipSuccess)
		return hipErrorOutOfMemory;
	void *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		if (device >= 0)
			simrocm_unreserve(device, (int64_t)mapped);
		return hipErrorOutOfMemory;
	}
	if (mapped >= (size_t)4 << 20)
		madvise(p, mapped, MADV_HUGEPAGE);
	pthread_mutex_lock(&mu);
	if (count == capacity) {
		int more = capacity == 0 ? 64 : capacity * 2;
		struct allocation *grown = realloc(allocations, sizeof *grown * (size_t)more);
		if (grown == NULL)
			abort();
		allocations = grown;
		capacity = more;
	}
	allocations[count++] = (struct allocation){p, bytes, mapped, device, ++next_generation};
	pthread_mutex_unlock(&mu);
	*out = p;
	return hipSuccess;
}

static int release(void *ptr, bool host)
{
	if (ptr == NULL)
		return hipSuccess;
	pthread_mutex_lock(&mu);
	struct allocation *a = find(ptr);
	if (a == NULL || a->base != ptr || (a->device < 0) != host) {
		pthread_mutex_unlock(&mu);
		return hipErrorInvalidValue;
	}
	int device = a->device;
	pthread_mutex_unlock(&mu);
	if (device >= 0)
		sim_device_wait(device); /* as HIP: hipFree waits for the device */
	pthread_mutex_lock(&mu);
	a = find(ptr);
	if (a != NULL) {
		struct allocation gone = *a;
		*a = allocations[--count];
		if (gone.device >= 0)
			used[gone.device] -= (int64_t)gone.mapped;
		munmap(gone.base, gone.mapped);
	}
	pthread_mutex_unlock(&mu);
	return hipSuccess;
}

SIM_API int hipMalloc(void **out, size_t bytes)
{
	if (simrocm_config()->visible_count == 0)
		return sim_error(hipErrorNoDevice);
	return sim_error(allocate(out, bytes, simrocm_current_device()));
}

SIM_API int hipFree(void *ptr) { return sim_error(release(ptr, false)); }

SIM_API int hipHostMalloc(void **out, size_t bytes, unsigned flags)
{
	(void)flags;
	return sim_error(allocate(out, bytes, -1));
}

SIM_API int hipHostFree(void *ptr) { return sim_error(release(ptr, true)); }

SIM_API int hipMemGetInfo(size_t *free_out, size_t *total_out)
{
	if (simrocm_config()->visible_count == 0)
		return sim_error(hipErrorNoDevice);
	pthread_mutex_lock(&mu);
	if (free_out != NULL)
		*free_out = (size_t)free_bytes(simrocm_current_device());
	if (total_out != NULL)
		*total_out = (size_t)total_bytes();
	pthread_mutex_unlock(&mu);
	return sim_error(hipSuccess);
}

SIM_API int hipDeviceTotalMem(size_t *bytes, int device)
{
	if (bytes == NULL)
		return sim_error(hipErrorInvalidValue);
	if (device < 0 || device >= simrocm_config()->visible_count)
		return sim_error(hipErrorInvalidDevice);
	*bytes = (size_t)total_bytes();
	return sim_error(hipSuccess);
}

struct copy {
	void *dst;
	const void *src; /* NULL: fill with value */
	size_t bytes;
	int value;
	int64_t duration_ns;
};

static void copy_task(struct sim_stream *s, void *arg)
{
	struct copy *c = arg;
	if (c->src != NULL)
		memmove(c->dst, c->src, c->bytes);
	else
		memset(c->dst, c->value, c->bytes);
	simrocm_written(c->dst);
	simrocm_set_clock_ns(s, simrocm_clock_ns(s) + c->duration_ns);
	free(c);
}

/* where says what a pointer is: 1 device, 0 pinned host, -1 pageable host. fits is false if the range ends outside. */
static int where(const void *ptr, size_t bytes, bool *fits)
{
	pthread_mutex_lock(&mu);
	struct allocation *a = find(ptr);
	int kind = a == NULL ? -1 : a->device >= 0;
	if (a != NULL && bytes > (size_t)(a->base + a->bytes - (const char *)ptr))
		*fits = false;
	pthread_mutex_unlock(&mu);
	return kind;
}

static int submit(void *dst, const void *src, int value, size_t bytes, int kind, void *stream, bool wait)
{
	if (kind < 0 || kind > 4 || (bytes > 0 && dst == NULL))
		return hipErrorInvalidValue;
	if (bytes == 0)
		return hipSuccess;
	bool fits = true;
	int to = where(dst, bytes, &fits);
	int from = src != NULL ? where(src, bytes, &fits) : 1;
	bool to_device = kind == 1 || kind == 3, from_device = kind == 2 || kind == 3;
	if (!fits || (kind != 4 && (to_device != (to == 1) || (src != NULL && from_device != (from == 1)))))
		return hipErrorInvalidValue;
	struct copy *c = malloc(sizeof *c);
	if (c == NULL)
		return hipErrorOutOfMemory;
	bool host = to != 1 || from != 1;
	int64_t mbps = host ? HOST_COPY_MBPS : DEVICE_COPY_MBPS;
	*c = (struct copy){dst, src, bytes, value,
		(host ? HOST_COPY_BASE_NS : DEVICE_COPY_BASE_NS) + (int64_t)((double)bytes * 1000 / (double)mbps)};
	struct sim_stream *s = simrocm_stream(stream);
	simrocm_enqueue(s, copy_task, c);
	/* Pageable host memory may be gone when an asynchronous copy gets to it; HIP stages such copies before it returns. */
	if (wait || to < 0 || from < 0)
		simrocm_stream_wait(s);
	return hipSuccess;
}

SIM_API int hipMemcpy(void *dst, const void *src, size_t bytes, int kind)
{
	if (src == NULL && bytes > 0)
		return sim_error(hipErrorInvalidValue);
	return sim_error(submit(dst, src, 0, bytes, kind, NULL, true));
}

SIM_API int hipMemcpyAsync(void *dst, const void *src, size_t bytes, int kind, void *stream)
{
	if (src == NULL && bytes > 0)
		return sim_error(hipErrorInvalidValue);
	return sim_error(submit(dst, src, 0, bytes, kind, stream, false));
}

SIM_API int hipMemset(void *dst, int value, size_t bytes)
{
	return sim_error(submit(dst, NULL, value, bytes, 4, NULL, true));
}

SIM_API int hipMemsetAsync(void *dst, int value, size_t bytes, void *stream)
{
	return sim_error(submit(dst, NULL, value, bytes, 4, stream, false));
}
