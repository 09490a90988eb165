/* device.c - devices, versions and errors of the simulated HIP runtime. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hip.h"

static __thread int current_device;
static __thread int last_error;
static __thread bool peer_enabled[SIM_MAX_GPUS];

int simrocm_current_device(void) { return current_device; }

int sim_error(int error)
{
	if (error != hipSuccess && error != hipErrorNotReady)
		last_error = error;
	return error;
}

__attribute__((constructor)) static void hide_missing(void)
{
	static const char here;
	const struct sim_config *c = simrocm_config();
	if (c->faulty[FAULT_MISSING_SYMBOL] != 0 && strncmp(c->fault_symbol, "hip", 3) == 0)
		simrocm_hide_symbol(&here, c->fault_symbol);
}

static bool valid(int device) { return device >= 0 && device < simrocm_config()->visible_count; }

SIM_API int hipInit(unsigned flags)
{
	if (flags != 0)
		return sim_error(hipErrorInvalidValue);
	return sim_error(simrocm_config()->visible_count > 0 ? hipSuccess : hipErrorNoDevice);
}

SIM_API int hipGetDeviceCount(int *count)
{
	if (count == NULL)
		return sim_error(hipErrorInvalidValue);
	*count = simrocm_config()->visible_count;
	return sim_error(*count > 0 ? hipSuccess : hipErrorNoDevice);
}

SIM_API int hipSetDevice(int device)
{
	if (!valid(device))
		return sim_error(hipErrorInvalidDevice);
	current_device = device;
	return sim_error(hipSuccess);
}

SIM_API int hipGetDevice(int *device)
{
	if (device == NULL)
		return sim_error(hipErrorInvalidValue);
	*device = current_device;
	return sim_error(simrocm_config()->visible_count > 0 ? hipSuccess : hipErrorNoDevice);
}

SIM_API int hipDeviceSynchronize(void)
{
	sim_device_wait(current_device);
	return sim_error(hipSuccess);
}

SIM_API int hipDeviceReset(void) { return hipDeviceSynchronize(); }

SIM_API int hipDeviceGetPCIBusId(char *out, int size, int device)
{
	if (out == NULL || size <= 0)
		return sim_error(hipErrorInvalidValue);
	if (!valid(device))
		return sim_error(hipErrorInvalidDevice);
	const struct sim_config *c = simrocm_config();
	snprintf(out, (size_t)size, "%s", c->pci[c->visible[device]]);
	return sim_error(hipSuccess);
}

SIM_API int hipDeviceGetByPCIBusId(int *device, const char *pci)
{
	if (device == NULL || pci == NULL)
		return sim_error(hipErrorInvalidValue);
	const struct sim_config *c = simrocm_config();
	for (int i = 0; i < c->visible_count; i++)
		if (strcasecmp(c->pci[c->visible[i]], pci) == 0) {
			*device = i;
			return sim_error(hipSuccess);
		}
	return sim_error(hipErrorInvalidValue);
}

SIM_API int hipDeviceGetName(char *out, int size, int device)
{
	if (out == NULL || size <= 0)
		return sim_error(hipErrorInvalidValue);
	if (!valid(device))
		return sim_error(hipErrorInvalidDevice);
	snprintf(out, (size_t)size, "%s", simrocm_config()->model->hip_name);
	return sim_error(hipSuccess);
}

SIM_API int hipRuntimeGetVersion(int *version)
{
	if (version == NULL)
		return sim_error(hipErrorInvalidValue);
	*version = simrocm_config()->hip_runtime_version;
	return sim_error(hipSuccess);
}

SIM_API int hipDriverGetVersion(int *version) { return hipRuntimeGetVersion(version); }

SIM_API int hipDeviceCanAccessPeer(int *can, int device, int peer)
{
	if (can == NULL)
		return sim_error(hipErrorInvalidValue);
	if (!valid(device) || !valid(peer))
		return sim_error(hipErrorInvalidDevice);
	*can = device != peer;
	return sim_error(hipSuccess);
}

/* Own ordinal and ordinals past the visible devices are refused: hipamd/src/hip_peer.cpp. */
SIM_API int hipDeviceEnablePeerAccess(int peer, unsigned flags)
{
	if (flags != 0)
		return sim_error(hipErrorInvalidValue);
	if (!valid(peer) || peer == current_device)
		return sim_error(hipErrorInvalidDevice);
	if (peer_enabled[peer])
		return sim_error(hipErrorPeerAccessAlreadyEnabled);
	peer_enabled[peer] = true;
	return sim_error(hipSuccess);
}

SIM_API int hipExtGetLinkTypeAndHopCount(int a, int b, uint32_t *type, uint32_t *hops)
{
	if (type == NULL || hops == NULL)
		return sim_error(hipErrorInvalidValue);
	if (!valid(a) || !valid(b) || a == b)
		return sim_error(hipErrorInvalidDevice);
	const struct sim_config *c = simrocm_config();
	uint8_t kind = c->pair_kind[c->visible[a]][c->visible[b]];
	*type = kind == SIM_LINK_XGMI ? SIM_LINK_XGMI : SIM_LINK_PCIE;
	*hops = kind == SIM_LINK_XGMI ? 1 : 2;
	return sim_error(hipSuccess);
}

SIM_API const char *hipGetErrorName(int error)
{
	switch (error) {
	case hipSuccess: return "hipSuccess";
	case hipErrorInvalidValue: return "hipErrorInvalidValue";
	case hipErrorOutOfMemory: return "hipErrorOutOfMemory";
	case hipErrorNoDevice: return "hipErrorNoDevice";
	case hipErrorInvalidDevice: return "hipErrorInvalidDevice";
	case hipErrorInvalidContext: return "hipErrorInvalidContext";
	case hipErrorInvalidHandle: return "hipErrorInvalidHandle";
	case hipErrorNotFound: return "hipErrorNotFound";
	case hipErrorNotReady: return "hipErrorNotReady";
	case hipErrorPeerAccessAlreadyEnabled: return "hipErrorPeerAccessAlreadyEnabled";
	default: return "hipErrorUnknown";
	}
}

SIM_API const char *hipGetErrorString(int error)
{
	switch (error) {
	case hipSuccess: return "no error";
	case hipErrorInvalidValue: return "invalid argument";
	case hipErrorOutOfMemory: return "out of memory";
	case hipErrorNoDevice: return "no ROCm-capable device is detected";
	case hipErrorInvalidDevice: return "invalid device ordinal";
	case hipErrorInvalidContext: return "invalid device context";
	case hipErrorInvalidHandle: return "invalid resource handle";
	case hipErrorNotFound: return "named symbol not found";
	case hipErrorNotReady: return "device not ready";
	case hipErrorPeerAccessAlreadyEnabled: return "peer access is already enabled";
	default: return "unknown error";
	}
}

SIM_API int hipGetLastError(void)
{
	int e = last_error;
	last_error = hipSuccess;
	return e;
}

SIM_API int hipPeekAtLastError(void) { return last_error; }
