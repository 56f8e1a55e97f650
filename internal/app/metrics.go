package app

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// version is stamped by release builds.
var version = ""

// Version is the release, or what the Go toolchain knows of the tree.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// commit is that of the tree this was built from, empty when unknown.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// registerBuild reports which build runs: llmguard_build_info is always 1.
func registerBuild(reg prometheus.Registerer) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "llmguard_build_info", Help: "1, with the version, the commit and the Go version of this process.",
		ConstLabels: prometheus.Labels{"version": Version(), "commit": commit(), "go": runtime.Version()},
	})
	g.Set(1)
	reg.MustRegister(g)
}
