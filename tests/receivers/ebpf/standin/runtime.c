/* A stand-in for libcudart.so.12. It loads libcuda.so.1 at the first call, and works by calling it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "standin.h"

static void *driver_symbol(const char *name)
{
    static void *library;
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    return found;
}

#define DRIVER(name)                              \
    ({                                            \
        static __typeof__(&name) found;           \
        if (!found)                               \
            found = driver_symbol(#name);         \
        found;                                    \
    })

cudaError_t cudaSetDevice(int device)
{
    CUcontext context;
    CUresult result = DRIVER(cuDevicePrimaryCtxRetain)(&context, device);
    return result ? result : DRIVER(cuCtxSetCurrent)(context);
}

cudaError_t cudaGetDevice(int *device) { return DRIVER(cuCtxGetDevice)(device); }
cudaError_t cudaDeviceSynchronize(void) { return DRIVER(cuCtxSynchronize)(); }
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return DRIVER(cuStreamCreate)(stream, 0); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return DRIVER(cuStreamSynchronize)(stream); }
cudaError_t cudaEventCreate(cudaEvent_t *event) { return DRIVER(cuEventCreate)(event, 0); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return DRIVER(cuEventRecord)(event, stream); }
cudaError_t cudaEventQuery(cudaEvent_t event) { return DRIVER(cuEventQuery)(event); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return DRIVER(cuEventSynchronize)(event); }

cudaError_t cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream)
{
    if (!func)
        return cudaErrorInvalidDeviceFunction;
    return DRIVER(cuLaunchKernel)((CUfunction)func, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream,
                                  args, NULL);
}

cudaError_t cudaLaunchKernel_ptsz(const void *func, dim3 grid, dim3 block, void **args, size_t shared,
                                  cudaStream_t stream)
{
    if (!func)
        return cudaErrorInvalidDeviceFunction;
    return DRIVER(cuLaunchKernel)((CUfunction)func, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream,
                                  args, NULL);
}

cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 grid, dim3 block, void **args, size_t shared,
                                        cudaStream_t stream)
{
    if (!func)
        return cudaErrorInvalidDeviceFunction;
    return DRIVER(cuLaunchCooperativeKernel)((CUfunction)func, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                             shared, stream, args);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args)
{
    if (!func)
        return cudaErrorInvalidDeviceFunction;
    CUlaunchConfig driver = {config->gridDim.x,  config->gridDim.y,  config->gridDim.z,        config->blockDim.x,
                             config->blockDim.y, config->blockDim.z, config->dynamicSmemBytes, config->stream};
    return DRIVER(cuLaunchKernelEx)(&driver, (CUfunction)func, args, NULL);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) { return DRIVER(cuGraphLaunch)(graph, stream); }

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    if (kind == cudaMemcpyHostToDevice)
        return DRIVER(cuMemcpyHtoD_v2)((CUdeviceptr)dst, src, count);
    if (kind == cudaMemcpyDeviceToHost)
        return DRIVER(cuMemcpyDtoH_v2)(dst, (CUdeviceptr)src, count);
    if (kind == cudaMemcpyDeviceToDevice)
        return DRIVER(cuMemcpyDtoD_v2)((CUdeviceptr)dst, (CUdeviceptr)src, count);
    return cudaErrorInvalidValue;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (kind == cudaMemcpyHostToDevice)
        return DRIVER(cuMemcpyHtoDAsync_v2)((CUdeviceptr)dst, src, count, stream);
    if (kind == cudaMemcpyDeviceToHost)
        return DRIVER(cuMemcpyDtoHAsync_v2)(dst, (CUdeviceptr)src, count, stream);
    if (kind == cudaMemcpyDeviceToDevice)
        return DRIVER(cuMemcpyDtoDAsync_v2)((CUdeviceptr)dst, (CUdeviceptr)src, count, stream);
    return cudaErrorInvalidValue;
}

cudaError_t cudaMalloc(void **pointer, size_t size) { return DRIVER(cuMemAlloc_v2)((CUdeviceptr *)pointer, size); }
cudaError_t cudaFree(void *pointer) { return DRIVER(cuMemFree_v2)((CUdeviceptr)pointer); }

cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t stream)
{
    return DRIVER(cuMemAllocAsync)((CUdeviceptr *)pointer, size, stream);
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream)
{
    return DRIVER(cuMemFreeAsync)((CUdeviceptr)pointer, stream);
}

cudaError_t cudaMallocManaged(void **pointer, size_t size, unsigned flags)
{
    return DRIVER(cuMemAllocManaged)((CUdeviceptr *)pointer, size, flags);
}
