// Counts the kernels that a process really ran, by device and name, recorded passes' included, with the profiler's own
// interface (CUPTI, activity records; NVIDIA, "CUPTI user's guide"): the other side of what our counters say.
//
// g++ -shared -fPIC -O2 -I CUPTI/include -I CUDA/include count_kernels.cpp -o count_kernels.so CUPTI/lib/libcupti.so.13
// CUDA_INJECTION64_PATH=$PWD/count_kernels.so COUNT_KERNELS=OUT PROGRAM...
// When a file OUT.now appears, everything up to then is written to OUT and OUT.now is removed; so it is at the end. Lines:
// device, count, microseconds in all, name; before them, for each device, how long it was busy since the file was written
// last, and the pauses that are too long to lie within a recorded pass: those between steps.
#include <cupti.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

struct Sum {
    unsigned long long count = 0, nanoseconds = 0;
};

std::mutex lock;
std::map<std::pair<unsigned, std::string>, Sum> sums;
// From when to when a kernel ran, in nanoseconds, by device.
std::map<unsigned, std::vector<std::pair<unsigned long long, unsigned long long>>> runs;
// Pauses between steps: longer than those between kernels, shorter than a wait for work.
constexpr unsigned long long SHORTEST = 3000, LONGEST = 1000000;
unsigned long long lost = 0;
std::string path;

void check(CUptiResult result, const char* call) {
    if (result != CUPTI_SUCCESS) {
        const char* text = "unknown";
        cuptiGetResultString(result, &text);
        std::fprintf(stderr, "count_kernels: %s: %s\n", call, text);
    }
}

void CUPTIAPI give(uint8_t** buffer, size_t* size, size_t* most) {
    *size = 4 << 20;
    *most = 0;
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *size));
}

void CUPTIAPI take(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
    std::lock_guard<std::mutex> hold(lock);
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
            auto* kernel = reinterpret_cast<CUpti_ActivityKernel10*>(record);
            unsigned device = kernel->deviceId;
            Sum& sum = sums[{device, kernel->name ? kernel->name : "?"}];
            sum.count += 1;
            sum.nanoseconds += kernel->end - kernel->start;
            const unsigned long long start = kernel->start, end = kernel->end;
            runs[device].emplace_back(start, end);
        }
    }
    size_t dropped = 0;
    if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS) {
        lost += dropped;
    }
    std::free(buffer);
}

void write_pauses(std::FILE* file, unsigned device, std::vector<std::pair<unsigned long long, unsigned long long>>& spans) {
    std::sort(spans.begin(), spans.end());
    std::vector<unsigned long long> pauses;
    unsigned long long busy = 0, until = spans.front().first;
    for (const auto& [start, end] : spans) {
        if (start > until && start - until >= SHORTEST && start - until <= LONGEST) {
            pauses.push_back(start - until);
        }
        busy += end > until ? end - std::max(start, until) : 0;
        until = std::max(until, end);
    }
    std::sort(pauses.begin(), pauses.end());
    auto part = [&](double share) { return pauses.empty() ? 0.0 : pauses[static_cast<size_t>(share * (pauses.size() - 1))] / 1e3; };
    std::fprintf(file, "# device %u: busy %.1f of %.1f us; %zu pauses of %.0f to %.0f us: median %.1f, 90 %% %.1f, 99 %% %.1f us\n", device,
                 busy / 1e3, (until - spans.front().first) / 1e3, pauses.size(), SHORTEST / 1e3, LONGEST / 1e3, part(0.5), part(0.9),
                 part(0.99));
}

void write() {
    check(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
    std::lock_guard<std::mutex> hold(lock);
    std::FILE* file = std::fopen((path + ".part").c_str(), "w");
    if (file == nullptr) {
        std::perror("count_kernels");
        return;
    }
    std::fprintf(file, "# records lost: %llu\n", lost);
    for (auto& [device, spans] : runs) {
        write_pauses(file, device, spans);
    }
    runs.clear();
    for (const auto& [key, sum] : sums) {
        std::fprintf(file, "%u\t%llu\t%.1f\t%s\n", key.first, sum.count, sum.nanoseconds / 1e3, key.second.c_str());
    }
    std::fclose(file);
    std::rename((path + ".part").c_str(), path.c_str());
}

void watch() {
    const std::string now = path + ".now";
    for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (access(now.c_str(), F_OK) == 0) {
            write();
            unlink(now.c_str());
        }
    }
}

}  // namespace

extern "C" int InitializeInjection() {
    const char* out = std::getenv("COUNT_KERNELS");
    path = out != nullptr ? out : "kernels.txt";
    check(cuptiActivityRegisterCallbacks(give, take), "cuptiActivityRegisterCallbacks");
    check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
    std::thread(watch).detach();
    std::atexit(write);
    return 1;
}
