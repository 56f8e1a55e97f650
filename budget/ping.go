package budget

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Ping asks the server that has an org's keys for anything. An answer is no error,
// whatever it says.
func (s *Store) Ping(ctx context.Context, org string) error {
	err := s.rdb.Exists(ctx, key(org, "leases")).Err()
	var answer redis.Error
	if errors.As(err, &answer) {
		return nil
	}
	return err
}
