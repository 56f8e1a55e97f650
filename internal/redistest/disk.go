package redistest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// FillDisk makes saving fail, as on a full disk. Until FreeDisk, the server refuses writes with
// MISCONF.
func (s *Server) FillDisk() {
	s.tb.Helper()
	ctx, rdb := context.Background(), s.direct()
	// A file cannot replace a directory, even for root.
	if err := os.MkdirAll(filepath.Join(s.dir, "dump.rdb", "x"), 0o700); err != nil {
		s.tb.Fatal(err)
	}
	for _, set := range [][2]string{{"save", "100000 100000000"}, {"stop-writes-on-bgsave-error", "yes"}} {
		if err := rdb.ConfigSet(ctx, set[0], set[1]).Err(); err != nil {
			s.tb.Fatal(err)
		}
	}
	if err := rdb.BgSave(ctx).Err(); err != nil {
		s.tb.Fatal(err)
	}
	for range 3000 {
		if strings.Contains(rdb.Info(ctx, "persistence").Val(), "rdb_last_bgsave_status:err") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.tb.Fatal("the save did not fail")
}

// FreeDisk makes the server accept writes again.
func (s *Server) FreeDisk() {
	s.tb.Helper()
	if err := s.direct().ConfigSet(context.Background(), "stop-writes-on-bgsave-error", "no").Err(); err != nil {
		s.tb.Fatal(err)
	}
}
