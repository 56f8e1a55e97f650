package budget

// holdJoint joins runs of hold.lua by hold_many.lua, which list KEYS and ARGV.
func holdJoint(many script) *joint {
	const head, each = holdHead, holdEach
	return &joint{
		many: many, keys: 4, own: 3, each: 3,
		key: func(r run) groupKey {
			var k groupKey
			for i := range 3 {
				k.keys[i] = text(r.keys[i])
			}
			k.args[0], k.args[1], k.args[2], k.args[3] = r.args[0], r.args[2], r.args[3], r.args[len(r.args)-1]
			return k
		},
		limits: func(r run, list []limitArgs) []limitArgs {
			for i := range r.keys[3 : len(r.keys)-1] {
				a := r.args[head+each*i:]
				list = append(list, limitArgs{text(r.keys[3+i]), text(a[0]), text(a[4]), text(a[5])})
			}
			return list
		},
		add: func(g *group, keys []string, args []any) ([]string, []any) {
			first := g.runs[0]
			for i := range 3 {
				keys = append(keys, text(first.keys[i]))
			}
			keys = append(keys, text(first.keys[len(first.keys)-1]))
			args = append(args, first.args[2], first.args[3], first.args[len(first.args)-1], len(g.limits), len(g.runs), g.each())
			keys, args = g.addLimits(keys, args)
			for _, r := range g.runs {
				args = append(args, r.args[1])
			}
			for i, r := range g.runs {
				args = append(args, r.args[4], r.args[5])
				for j, n := range g.numbersOf(i) {
					a := r.args[head+each*j:]
					args = append(args, n, a[2], a[3])
				}
			}
			return keys, args
		},
	}
}

// addLimits appends the limits' keys, and how they are read.
func (g *group) addLimits(keys []string, args []any) ([]string, []any) {
	for i := range g.limits {
		l := &g.limits[i]
		keys = append(keys, l.key)
		args = append(args, &l.kind, &l.p1, &l.p2)
	}
	return keys, args
}
