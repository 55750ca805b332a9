"""Random Jinja templates from a seed, for jinja_judge.py: expressions of every operator, filter, test and method that
text/template.h knows, mostly of fitting types, and the statements around them.

Left out is what docs/internals/templates.md names as different: slices of constants that have none, and markup."""
import random

TEXTS = ["", "a", "Hello World", "  two  words ", "naïve Straße", "line one\nline two\n\nline four", "x,y,,z", "İ ß ǆ Ω",
         "42", "-3.5", "0x1f", "{}", "%s and %d", "tab\there", "ABC", "abc def-ghi (jkl)", "😀 smile", "it's \"q\"", "Σας",
         "aXbXc", "<b>&amp;</b>", "²½٣"]
VARIABLES = {
    "s": "Some text, with  spaces", "u": "Ünïcode Ωmega 😀 end", "e": "", "n": 7, "neg": -3, "zero": 0, "f": 2.5,
    "yes": True, "no": False, "nil": None, "big": 1e17,
    "l": [3, 1, 2, 3], "w": ["pear", "Apple", "fig", "apple", ""], "mixed": [1, "a", None, 2.5, True, [1, 2], {"k": "v"}],
    "d": {"b": 2, "a": 1, "C": 3}, "o": {"name": "x", "items": [1, 2], "deep": {"v": [{"w": "end"}]}, "get": "own", "ü": "ß"},
    "rows": [{"n": "Bo", "k": 2, "t": {"x": 1}}, {"n": "al", "k": 1, "t": {"x": 5}}, {"n": "Cy", "k": 2},
             {"n": "bo", "k": None, "t": {"x": 0}}],
}
KINDS = {
    "str": ["s", "u", "e", "o.name", "w[0]", "rows[0].n", "missing"],
    "int": ["n", "neg", "zero", "l[0]", "d.a", "d['b']", "rows[1].k", "yes"],
    "float": ["f", "big", "mixed[3]"],
    "bool": ["yes", "no"],
    "list": ["l", "w", "mixed", "rows", "o.deep.v", "o['items']"],
    "dict": ["d", "o", "rows[0]", "o.deep", "rows[2].t"],
    "any": ["nil", "missing", "s", "n", "f", "l", "d", "rows", "yes", "mixed", "w"],
}
INPUT = {"messages": [], "tools": None, "documents": None, "add_generation_prompt": True, "bos_token": "<s>",
         "eos_token": "</s>", "kwargs": VARIABLES}


class Maker:
    def __init__(self, rng):
        self.r = rng

    def pick(self, *choices):
        return self.r.choice(choices)

    def quoted(self, text):
        q = self.pick("'", '"')
        text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
        return q + text.replace(q, "\\" + q) + q

    def literal(self, kind):
        r = self.r
        if kind == "str":
            return self.quoted(r.choice(TEXTS))
        if kind == "int":
            return str(r.choice([0, 1, 2, 3, 5, 7, 10, 12, -1, -4]))
        if kind == "float":
            return r.choice(["0.5", "2.0", "3.25", "1e3", "0.1", "-1.5", "1e16", "123456.789", "2.675"])
        if kind == "bool":
            return r.choice(["true", "false", "True", "False"])
        if kind == "list":
            items = [self.literal(r.choice(["str", "int", "float", "bool"])) for _ in range(r.randint(0, 4))]
            return self.pick("[%s]", "(%s,)" if items else "[%s]") % ", ".join(items)
        if kind == "dict":
            return "{%s}" % ", ".join(f"{self.literal(r.choice(['str', 'int']))}: {self.literal('any')}"
                                      for _ in range(r.randint(0, 3)))
        return self.literal(r.choice(["str", "int", "float", "bool", "list", "dict"])) if r.random() < 0.8 else "none"

    def expr(self, kind, depth):
        r = self.r
        if r.random() < 0.04:
            kind = r.choice(list(KINDS))
        if kind == "any":
            kind = r.choice(["str", "int", "float", "bool", "list", "dict", "str", "list"])
        if depth <= 0 or r.random() < 0.1:
            return r.choice(KINDS[kind]) if r.random() < 0.55 else self.literal(kind)
        made = getattr(self, "make_" + kind)(depth - 1)
        return f"({made})" if r.random() < 0.6 else made

    def simple(self, kind, depth):
        """Something that a dot or a bar may follow."""
        return "(" + self.expr(kind, depth) + ")"

    def args(self, *kinds):
        return ", ".join(self.expr(k, 0) for k in kinds)

    def some(self, *kinds):
        """The first of some arguments."""
        return self.args(*kinds[:self.r.randint(0, len(kinds))])

    def attribute(self):
        return self.pick("'n'", "'k'", "'t.x'", "'t'", "'nope'", "'0'", "0")

    def make_str(self, d):
        e, r = self.expr, self.r
        s = self.simple("str", d)
        w = self.pick
        methods = [
            lambda: f"{s}.{w('upper', 'lower', 'title', 'capitalize', 'swapcase', 'casefold')}()",
            lambda: f"{s}.{w('strip', 'lstrip', 'rstrip')}({w('', '', chr(39) + ' ae' + chr(39), 'none', self.args('str'))})",
            lambda: f"{s}.replace({self.args('str', 'str')}{w('', ', 1', ', 0', ', -1', ', 2')})",
            lambda: f"{s}.{w('removeprefix', 'removesuffix')}({self.args('str')})",
            lambda: f"{s}.{w('center', 'ljust', 'rjust')}({w('0', '12', '20', '-3')}{w('', ', ' + self.quoted('*'), ', ' + self.quoted('é'))})",
            lambda: f"{s}.zfill({w('3', '8', '0')})",
            lambda: f"{s}.join({w('w', 's', e('list', d))})",
            lambda: f"{s}.expandtabs({w('', '4', '0')})",
            lambda: f"{s}.{w('partition', 'rpartition')}({self.args('str')})[{w('0', '1', '2', '-1')}]",
        ]
        filters = ["upper", "lower", "title", "capitalize", "trim", "string", "trim('aeH ')", f"replace({self.args('str', 'str')})",
                   f"replace('a', 'b', {w('none', '1', '0')})", f"default({self.args('any')})", f"d('x', {w('true', 'false')})",
                   f"indent({w('', '2', '2, true', '3, true, true', 'width=1, blank=true', quote_dash())})",
                   f"truncate({w('', '5', '9, true', '8, false, %s' % self.quoted('…'), '6, leeway=0', '2')})",
                   f"center({w('', '9', '20')})", "tojson", "first", "last", f"default('', true)"]
        forms = [
            lambda: w(*methods)(), lambda: w(*methods)(),
            lambda: f"{s}|{w(*filters)}", lambda: f"{w('s', 'u', 'e', 'o.name')}|reverse", lambda: f"{s}|{w(*filters)}|{w(*filters)}",
            lambda: f"{e('str', d)} + {e('str', d)}", lambda: f"{e('any', d)} ~ {e('any', d)} ~ {e('str', 0)}",
            lambda: f"{s} * {w('0', '1', '3', 'neg', 'yes')}",
            lambda: f"{w(*KINDS['str'])}[{self.slice()}]", lambda: f"{s}[{self.expr('int', 0)}]",
            lambda: f"{e('any', d)}|tojson{w('', '(indent=2)', '(ensure_ascii=true)', '(sort_keys=true)', '(indent=4, sort_keys=true)', '(separators=(chr, chr))'.replace('chr', self.quoted(':')))}",
            lambda: f"{e('list', d)}|join({w('', self.args('str'))})", lambda: f"rows|join('/', attribute={self.attribute()})",
            lambda: f"{e('any', d)}|string", self.percent, self.percent, self.braces, self.braces,
            lambda: f"{e('str', d)} if {e('bool', d)} else {e('str', d)}", lambda: f"{e('str', d)} if {e('bool', d)}",
            self.wrapped, lambda: f"{e('any', d)}|urlencode", lambda: f"{e(w('int', 'float'), d)}|filesizeformat{w('', '(true)')}",
            lambda: f"{e('dict', d)}.get({self.args('str')}, {self.args('any')})",
        ]
        return r.choice(forms)()

    def wrapped(self):
        r = self.r
        text = "".join(r.choice(["a", "bc", "-", "--", "---", " ", "  ", "\t", "word", "é", ".", ",", "3", "x-y", "\n", "!", "_"])
                       for _ in range(r.randint(1, 14)))
        return f"{self.quoted(text)}|wordwrap({self.pick('1', '2', '3', '5', '8', '12', '0', '79')}{self.pick('', '', ', false', ', true, %s' % self.quoted('/'), ', true, none, false')})" \
            if r.random() < 0.9 else f"{self.quoted(text)}|wordwrap"

    def percent(self):
        w, spec = self.pick, self.pick("", "5", "-6", "05", "+", " ", "#", ".2", "8.3", "-8.1", "+05", "#8", "012.4", " .0")
        one = f"%{spec}{w(*'srdiuxXoeEfFgGcs%sda')}"
        if w(True, False):
            return f"{self.quoted(one)} % {w(self.args(w('int', 'float', 'str', 'any')), '(%s,)' % self.args('any'))}"
        if w(True, False):
            return f"{self.quoted('%s|%' + spec + 'd|%(x)s'[:w(3, 4, 6)])} % {w('(s, n)', '(n, f)', 'd', 's', '(1,)')}"
        return f"{self.quoted('%(a)s-%(b)' + spec + 'd')}{w(' % d', ' % o', '|format(a=s, b=n)', '|format(1)', '|format(b=2)')}"

    def braces(self):
        w = self.pick
        spec = w("", "", ":>8", ":<7", ":^9", ":*^9", ":05", ":+", ":,", ":_", ":.2f", ":.3", ":e", ":g", ":x", ":#x", ":b", ":o",
                 ":%", ":08.2f", ":=+8", ":s", ":10s", ":.1s", ":d", ":c", ":{}", ":>{}", "!r", "!s", "!a", "!r:>9", ":,.1f",
                 ":#06x", ":E", ":0>5", ":é^7", ": d", ":-5", ":+.1e", ":.0f", ":012,", ":q")
        field = w("", "", "0", "1", "k", "0[0]", "0.real", "k[a]", "0.nope", "2")
        text = w("", "a ", "{{}} ") + "{" + field + spec + "}" + w("", " {}", "}}", "!")
        return f"{self.quoted(text)}.format({self.args(w('int', 'float', 'str', 'any', 'int', 'float'), 'int')}{w('', ', k=d', ', k=f')})"

    def slice(self):
        w = self.pick
        part = lambda: w("", "", "1", "2", "-1", "-2", "0", "9", "none", "n")
        return f"{part()}:{part()}" + w("", "", ":", ":2", ":-1", ":-2", ":0")

    def make_int(self, d):
        e, w = self.expr, self.pick
        forms = [
            lambda: f"{e('int', d)} {w('+', '-', '*', '//', '%')} {e('int', d)}", lambda: f"{e('int', d)} + {e('int', d)} * {e('int', d)}",
            lambda: f"{e('int', 0)} ** {w('0', '1', '2', '3')}", lambda: f"-{e('int', d)}", lambda: f"+{e('int', d)}",
            lambda: f"{e(w('str', 'list', 'dict'), d)}|{w('length', 'count')}", lambda: f"{e('any', d)}|int{w('', '(5)', '(default=none)', '(0, 16)', '(0, 2)')}",
            lambda: f"{e('int', d)}|abs", lambda: f"{self.simple('str', d)}.{w('find', 'rfind', 'index', 'rindex', 'count')}({self.args('str')}{w('', ', 1', ', 1, 5', ', -3', ', none, 4')})",
            lambda: f"{self.simple('list', d)}.{w('count', 'index')}({self.args('any')})", lambda: f"{e('list', d)}|{w('first', 'last', 'max', 'min', 'sum')}",
            lambda: f"rows|{w('sum', 'max', 'min')}(attribute={self.attribute()})", lambda: f"{e('str', d)}|wordcount",
            lambda: f"{e(w('int', 'float'), d)}|round{w('', '(1)', '(-1)', '(0, %s)' % self.quoted('ceil'), '(1, %s)' % self.quoted('floor'), '(2)')}",
            lambda: f"{e('int', d)} if {e('bool', d)} else {e('int', d)}", lambda: f"{self.simple('int', d)}.{w('real', 'imag', 'bit_length()')}",
        ]
        return self.r.choice(forms)()

    def make_float(self, d):
        e, w = self.expr, self.pick
        forms = [
            lambda: f"{e('float', d)} {w('+', '-', '*', '/', '//', '%')} {e('float', d)}", lambda: f"{e('int', d)} / {e('int', d)}",
            lambda: f"{e('int', d)} {w('+', '-', '*', '/', '//', '%')} {e('float', d)}", lambda: f"{e('any', d)}|float{w('', '(1.5)', '(%s)' % self.quoted('no'))}",
            lambda: f"{e('float', d)}|round{w('', '(1)', '(2)', '(-1)', '(0, %s)' % self.quoted('floor'))}", lambda: f"-{e('float', d)}",
            lambda: f"{e('float', 0)}|abs", lambda: f"{w('2', 'f', '0.5', '10')} ** {w('-1', '-2', '0.5', '2')}",
        ]
        return self.r.choice(forms)()

    def test(self):
        w = self.pick
        return w("defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean",
                 "true", "false", "callable", "lower", "upper", "odd", "even", f"divisibleby({self.args('int')})", "divisibleby 3",
                 f"eq({self.args('any')})", f"ne({self.args('any')})", f"lt({self.args('any')})", "ge 2", f"in({self.args('list')})",
                 "equalto 1", "greaterthan 1", "filter", "test", "escaped")

    def make_bool(self, d):
        e, w = self.expr, self.pick
        k = w("int", "float", "str", "list", "any")
        forms = [
            lambda: f"{e(k, d)} {w('==', '!=', '<', '>', '<=', '>=')} {e(k, d)}", lambda: f"{e('int', d)} < {e('int', d)} <= {e('float', 0)}",
            lambda: f"{e('bool', d)} {w('and', 'or')} {e('any', d)}", lambda: f"not {e('any', d)}",
            lambda: f"{e('str', d)} {w('in', 'not in')} {e('str', d)}", lambda: f"{e('any', d)} {w('in', 'not in')} {e(w('list', 'dict'), d)}",
            lambda: f"{e('any', d)} is {w('', 'not ')}{self.test()}",
            lambda: f"{self.simple('str', d)}.{w('startswith', 'endswith')}({w(self.args('str'), '(%s, %s)' % (self.args('str'), self.args('str')), self.args('str') + ', 1')})",
            lambda: f"{self.simple('str', d)}.{w('isdigit', 'isalpha', 'isalnum', 'isspace', 'isupper', 'islower', 'istitle', 'isascii', 'isdecimal', 'isnumeric', 'isidentifier')}()",
        ]
        return self.r.choice(forms)()

    def make_list(self, d):
        e, w = self.expr, self.pick
        forms = [
            lambda: f"[{e('any', d)}, {e('any', d)}]", lambda: f"({e('any', d)}, {e('any', 0)})", lambda: f"{e('list', d)} + {e('list', d)}",
            lambda: f"{e('list', d)} * {w('0', '2', '-1')}", lambda: f"{w(*KINDS['list'])}[{self.slice()}]",
            lambda: f"{self.simple('str', d)}.{w('split', 'rsplit')}({w('', self.args('str'), self.args('str') + ', 1', 'none, 1', 'maxsplit=2', 'sep=' + self.quoted(','))})",
            lambda: f"{self.simple('str', d)}.splitlines({w('', 'true', 'keepends=false')})", lambda: f"{e(w('list', 'str', 'dict'), d)}|list",
            lambda: f"{e('list', d)}|{w('sort', 'sort(reverse=true)', 'sort(true, true)', 'sort(case_sensitive=true)')}",
            lambda: f"rows|sort(attribute={w('%sn%s', '%sk%s', '%st.x%s', '%sn,k%s') % (chr(39), chr(39))}{w('', ', reverse=true')})|{w('map(attribute=%s)|list' % self.attribute(), 'list')}",
            lambda: f"{e('list', d)}|{w('unique', 'unique(true)', 'reverse')}|list", lambda: f"rows|unique(attribute={self.attribute()})|list",
            lambda: f"{e('list', d)}|map({self.quoted(w('upper', 'string', 'length', 'int', 'abs', 'tojson', 'first', 'list', 'trim'))})|list",
            lambda: f"rows|map(attribute={self.attribute()}{w('', ', default=0', ', default=none')})|list",
            lambda: f"{e('list', d)}|{w('select', 'reject')}({w('', *[self.quoted(t) for t in ('odd', 'string', 'defined', 'none', 'mapping', 'number')], self.quoted('gt') + ', 1', self.quoted('in') + ', [1, 2]')})|list",
            lambda: f"rows|{w('selectattr', 'rejectattr')}({self.attribute()}{w('', ', %s' % self.quoted('defined'), ', %s, 2' % self.quoted('equalto'), ', %s, 1' % self.quoted('gt'), ', %s' % self.quoted('none'))})|list",
            lambda: f"{e('list', d)}|batch({w('2', '3', '1')}{w('', ', 0')})|list", lambda: f"{e('list', d)}|slice({w('2', '3', '1')}{w('', ', 0')})|list",
            lambda: f"rows|groupby({self.attribute()}{w('', ', default=9', ', case_sensitive=true')})|{w('list', 'map(attribute=%s)|list' % self.quoted('grouper'), 'length')}",
            lambda: f"{e('dict', d)}|{w('items', 'dictsort', 'list', 'dictsort(true)', 'dictsort(by=%s)' % self.quoted('value'), 'dictsort(false, %s, true)' % self.quoted('key'))}|list",
            lambda: f"{self.simple('dict', d)}.{w('items', 'keys', 'values')}(){w('', '|list')}", lambda: f"range({self.args('int')}{w('', ', 6', ', 9, 2', ', -4, -1')})|list",
            lambda: f"range({w('0', '1', '-2')}, {w('5', '9', '-6')}{w('', ', 2', ', -1')})[{self.slice()}]", lambda: f"{self.simple('str', 0)}.partition({self.args('str')})",
            lambda: f"{self.simple('list', d)}.copy()",
        ]
        return self.r.choice(forms)()

    def make_dict(self, d):
        e, w = self.expr, self.pick
        forms = [
            lambda: "{%s: %s, %s: %s}" % (self.literal("str"), e("any", d), self.literal("int"), e("any", d)), lambda: f"dict({w('', 'd', 'd, z=1', 'a=s, b=n', 'o, **d', '[(1, 2)]')})",
            lambda: f"{self.simple('dict', d)}.{w('get(%s)' % self.args('str'), 'copy()', 'deep', 'missing', 'name')}", lambda: f"{e('list', d)}|{w('first', 'last')}",
            lambda: f"{self.simple('dict', d)}[{self.args(w('str', 'int'))}]", lambda: f"{self.simple(w('list', 'dict', 'str', 'int'), d)}.{w('append', 'sort', 'update', '__class__', '_x', 'nope', 'real')}",
            lambda: f"{self.simple('any', d)}|attr({self.quoted(w('real', 'name', '__class__', 'x'))})", lambda: f"namespace(a={e('any', d)}).{w('a', 'b')}",
        ]
        return self.r.choice(forms)()

    # ---- statements ----

    def out(self, kind="any", depth=3):
        sign = lambda: self.pick("", "", "", "-")
        return "{{%s %s %s}}" % (sign(), self.expr(kind, depth), sign())

    def tag(self, text):
        return "{%%%s %s %s%%}" % (self.pick("", "", "", "-", "+"), text, self.pick("", "", "", "-", "+"))

    def body(self, depth):
        return self.pick("", " ", "\n", "\n  ", "x") + "".join(self.statement(depth) for _ in range(self.r.randint(1, 2))) + self.pick("", "\n", " \n\n", "\t")

    def statement(self, depth):
        w, t = self.pick, self.tag
        if depth <= 0 or self.r.random() < 0.4:
            return self.out("any", 2)
        return w(self.st_if, self.st_for, self.st_for, self.st_set, self.st_macro, self.st_call, self.st_with, self.st_filter,
                 self.st_namespace, self.st_recursive, self.st_misc)(depth - 1)

    def st_if(self, d):
        t = self.tag
        text = t("if " + self.expr(self.pick("bool", "any"), 2)) + self.body(d)
        if self.pick(True, False):
            text += t("elif " + self.expr("bool", 1)) + self.body(d)
        if self.pick(True, False):
            text += t("else") + self.body(d)
        return text + t("endif")

    def st_for(self, d):
        w, t = self.pick, self.tag
        target, over = w(("x", self.expr("list", 1)), ("x", "rows"), ("k, v", "d|dictsort"), ("k, v", "o.items()"), ("x", self.expr("str", 0)),
                         ("x", "range(4)"), ("x", self.expr("any", 1)), ("(k, v)", "[(1, 2), (3, 4)]"), ("x", "w|select"), ("x", "d"))
        name = "x" if target == "x" else "k"
        cond = w("", "", f" if {name}", f" if {name} is {self.test()}", " if loop is defined")
        inner = w("{{ loop.%s }}" % w("index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0",
                                      "previtem", "nextitem", "cycle('a', 'b')", "changed(%s)" % name, "nope"), "{{ %s }}" % name, "{{ loop }}",
                  t("if loop.index == 2") + t(w("break", "continue")) + t("endif"), t(f"set x = {name}") + "{{ x }}")
        text = t(f"for {target} in {over}{cond}") + inner + self.body(d)
        if w(True, False, False):
            text += t("else") + self.body(d)
        return text + t("endfor")

    def st_recursive(self, d):
        return (self.tag("for x in [[1, [2, [3]]], 's', [4]] recursive") + "{{ loop.depth }}:{{ loop.index }}"
                + "{% if x is sequence and x is not string %}[{{ loop(x) }}]{% else %}{{ x }}{% endif %}" + self.tag("endfor"))

    def st_set(self, d):
        t, name = self.tag, self.pick("a", "b", "s", "n", "l", "u")
        if self.pick(True, False):
            return t(f"set {name}" + self.pick("", " | upper", " | trim | length")) + self.body(d) + t("endset") + "{{ %s }}" % name
        if self.pick(True, False, False):
            return t("set a, b = " + self.pick("1, 2", "(s, n)", "[1, 2]", "l", "'xy'")) + "{{ a }}{{ b }}"
        return t(f"set {name} = " + self.expr("any", 2)) + "{{ %s }}" % name

    def st_namespace(self, d):
        t = self.tag
        return (t("set ns = namespace(" + self.pick("", "v=1", "v=s, l=[]", "d", "{'v': 2}") + ")") + t("for x in l") + t("set ns.v = " + self.pick("x", "ns.v ~ x", "ns.v + 1", "loop.index"))
                + t("endfor") + "{{ ns.v }}{{ " + self.pick("ns", "ns.q", "ns['v']", "ns is mapping", "ns.v is defined") + " }}")

    def st_macro(self, d):
        t, w = self.tag, self.pick
        params = w("", "a", "a, b", "a, b=2", "a='x', b=a", "b=n")
        used = w("{{ a }}", "{{ a }}-{{ b }}", "{{ varargs }}", "{{ kwargs }}", "{{ varargs|length }}{{ kwargs|dictsort }}", "{{ b is defined }}", "{{ caller }}")
        call = w("m()", "m(1)", "m(1, 2)", "m(1, 2, 3)", "m(a=1)", "m(1, b=3)", "m(b=4, c=5)", "m(*l)", "m(**d)", "m(1, a=2)", "m.name", "m(missing)", "m(1, *[2], **{'c': 3})")
        return t(f"macro m({params})") + used + self.body(d) + t("endmacro") + "{{ %s }}" % call

    def st_call(self, d):
        t, w = self.tag, self.pick
        inside = w("{{ caller() }}", "{{ caller(1) }}", "{{ caller(1, 2) }}", "{{ caller() if caller else 0 }}", "none")
        return (t("macro ww(a='A')") + "<{{ a }}:" + inside + ">" + t("endmacro") + t("call" + w("", "(x)", "(x, y=2)") + w(" ww()", " ww('q')", " ww(b=1)"))
                + "{{ x }}{{ y }}" + self.body(d) + t("endcall"))

    def st_with(self, d):
        return self.tag("with " + self.pick("a = 1", "a = s, b = n", "a = 1, b = a", "")) + "{{ a }}{{ b }}" + self.body(d) + self.tag("endwith")

    def st_filter(self, d):
        return self.tag("filter " + self.pick("upper", "trim", "replace('a', 'b')", "indent(2)", "length", "upper | trim")) + self.body(d) + self.tag("endfilter")

    def st_misc(self, d):
        return self.pick("{% raw %}{{ x }}{% endraw %}", "{#- c -#}", "{# {{ 1 }} #}\n", self.tag("generation") + self.body(d) + self.tag("endgeneration"),
                         "{{ raise_exception('no: ' ~ n) }}" if self.r.random() < 0.2 else "", "{{ strftime_now('%Y-%m-%d %H:%M %j %A %z') }}",
                         "{{ 'x'|nofilter }}" if self.r.random() < 0.2 else "", self.tag("print n, s"), "{% if no %}{{ 1 is notest }}{% endif %}")


FRAGMENTS = [" ", "  ", "\n", "\n\n", "\t", "text", "é", "{", "}", "%", "{ {", "{{ n }}", "{{- n -}}", "{{ n -}}", "{{+ n }}", "{{-n-}}",
             "{% if yes %}", "{%- if yes -%}", "{%+ if no +%}", "{% endif %}", "{%- endif -%}", "{%+ endif +%}", "{% endif -%}",
             "{# c #}", "{#- c -#}", "{#+ c +#}", "{# a\n b #}", "{# {% if %} #}", "{% raw %}", "{%- raw -%}", "{% endraw %}", "{%- endraw -%}",
             "{%+ endraw +%}", "{%raw%}{{ a }}{%endraw%}", "{% set q = 1 %}", "{%- set q = 1 -%}", "{%set q=1%}", "{{ '}}' }}", "{{ \"%}\" }}",
             "{% set q = '%}' %}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}}}", "{{ '\\n\\t\\x41\\u00e9\\101\\q\\\\' }}", "{{ 'a' 'b' }}",
             "{{ 1_000 + 0x1F + 0b11 + 0o17 }}", "{{ 1e2 }}{{ 1.5e-3 }}", "{{ l.0 }}{{ rows.0.n }}", "{{\nn\n}}", "{% if yes\n%}", "{{ n|upper\n}}",
             "{% for x in l -%}", "{%- endfor %}", "{% endfor %}", "{% for x in l %}", "{{ x }}", "\r\n", "\r", "{{ n }}\n", "{% if yes %}\n", "{{ -n }}", "{{ - n }}",
             "{{ n - 1 }}", "{{n-1}}", "{{ n -1 }}", "{{ (n) }}", "{{ [1,] }}", "{{ (1,) }}", "{{ () }}", "{{ 'it\\'s' }}", "{{ x.y.z }}", "{{ \"a\nb\" }}"]


def fragments(rng):
    """White space, signs, comments and raw blocks in every neighbourhood; many of these are errors."""
    text = "".join(rng.choice(FRAGMENTS) for _ in range(rng.randint(1, 9)))
    for begin, end in (("if ", "endif"), ("for ", "endfor"), (" raw", "endraw")):
        if rng.random() < 0.9:  # mostly whole
            text += "".join("{%% %s %%}" % end for _ in range(text.count(begin) - text.count(end)))
    return text


def quote_dash():
    return "'--'"


def templates(seed, count):
    rng = random.Random(seed)
    for i in range(count):
        m = Maker(rng)
        yield m.out("any", 1 + i % 4) if i % 2 else fragments(rng) if i % 8 == 0 else m.body(3)
