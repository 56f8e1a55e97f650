package config

// Memory bounds the bytes of bodies and answers under way in each process. An org that
// takes all it can get leaves about half of each bound to others. What finds no room
// within seconds is refused with 503 and Retry-After.
type Memory struct {
	// Bodies is how much memory they take at most. A body counts until it has been
	// sent, an answer until it has been handed on or is in a file. 0: a quarter of what
	// the process may use, which is GOMEMLIMIT, else the limit of its cgroup, else the
	// machine's memory; at least twice requests.max_body. Given, at least
	// requests.max_body.
	Bodies Size `yaml:"bodies" default:"0" min:"0"`
	// Spool is how many bytes of them may be in files of the temporary directory
	// (TMPDIR), where those above 1 MiB are while they are on their way. Make sure that
	// the directory has the space, and is on a disk. Given, at least requests.max_body; 0:
	// no files, memory has them all.
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
