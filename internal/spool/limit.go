package spool

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// assumedMemory is the assumed limit if the system does not report one.
const assumedMemory = 2 << 30

// headroom is the percentage of a cgroup's memory that Go's heap may use; the rest is for
// thread stacks, kernel buffers and the page cache.
const headroom = 90

// Limit returns how many bytes of memory this process may use: GOMEMLIMIT, else the limit of
// its cgroup, else the machine's memory.
func Limit() int64 {
	if soft := debug.SetMemoryLimit(-1); soft < math.MaxInt64 {
		return soft
	}
	if limit := cgroupLimit("/proc/self/cgroup", "/sys/fs/cgroup"); limit > 0 {
		return limit
	}
	return machineMemory("/proc/meminfo")
}

// RespectCgroup makes Go's garbage collector keep the heap below the memory limit of the
// process's cgroup, if there is one and GOMEMLIMIT is not set. It returns the limit set, or 0.
func RespectCgroup() int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit := cgroupLimit("/proc/self/cgroup", "/sys/fs/cgroup")
	if limit <= 0 {
		return 0
	}
	limit = limit / 100 * headroom
	debug.SetMemoryLimit(limit)
	return limit
}

// cgroupLimit returns the lowest memory limit of a process's cgroup (version 1 or 2) and its
// parents, or 0 if there is none.
func cgroupLimit(self, root string) int64 {
	text, err := os.ReadFile(self)
	if err != nil {
		return 0
	}
	least := int64(0)
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		dir, file := root, "memory.max"
		switch {
		case parts[1] == "":
		case strings.Contains(","+parts[1]+",", ",memory,"):
			dir, file = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		default:
			continue
		}
		for path := parts[2]; ; path = filepath.Dir(path) {
			if n := number(filepath.Join(dir, path, file)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if path == "/" || path == "." {
				break
			}
		}
	}
	return least
}

// unlimited is approximately what cgroups version 1 reports if there is no limit.
const unlimited = 1 << 62

func number(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil || n >= unlimited { // "max"
		return 0
	}
	return n
}

// machineMemory returns the machine's memory in bytes.
func machineMemory(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return assumedMemory
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemTotal:" {
			if kilobytes, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				return kilobytes << 10
			}
		}
	}
	return assumedMemory
}
