#pragma once
#include <functional>

// A stand-in for a GPU, in host memory: what is enqueued runs at once, in issue order, or, while a
// stream is captured, joins a graph that is run later. With it the host side of the CUDA backend is
// executed and compared with the CPU backend where there is no GPU. Says nothing about device
// kernels, about streams that lack an edge, or about what the libraries accept.
namespace stepcast::standin {

void enqueue(std::function<void()> work);

}  // namespace stepcast::standin
