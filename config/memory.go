package config

// Memory is the space for bodies and answers in flight in each process. An org that uses all it
// can get leaves about half of each limit to others. If there is no space within seconds, calls
// get 503 with Retry-After.
type Memory struct {
	// Bodies is how much memory they may use. A body counts until it is sent, an answer until
	// it is passed on or in a file. 0: a quarter of the process's memory (GOMEMLIMIT, else its
	// cgroup's limit, else the machine's), at least twice requests.max_body. Other values must
	// be at least requests.max_body.
	Bodies Size `yaml:"bodies" default:"0" min:"0"`
	// Spool is how many of these bytes may be in temporary files, which hold bodies above 1
	// MiB. The temporary directory (TMPDIR) must be on a disk with this much space. At least
	// requests.max_body; 0: no files, all bodies in memory.
	Spool Size `yaml:"spool" default:"2GB" min:"0"`
}

// checkRoom checks that the largest body has the room that was given for it.
func (d *document) checkRoom(cfg *Config) {
	for path, size := range map[string]Size{"memory.bodies": cfg.Memory.Bodies, "memory.spool": cfg.Memory.Spool} {
		if d.given(path) && size > 0 && size < cfg.Requests.MaxBody {
			d.failAt(path, "%d bytes have no room for a body of requests.max_body, which is %d bytes", size,
				cfg.Requests.MaxBody)
		}
	}
}
