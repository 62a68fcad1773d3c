"""Writes chat-snippets.json: small Jinja templates, as transformers' environment renders them.

Usage: python jinja.py

The file holds `variables`, which all templates see, and `snippets`: `template`, and the `text` that it gives; or `raised`,
the message of a template that calls raise_exception; or neither, where Jinja fails in some other way, whose words are its
own. The clock stands at 2024-02-29 13:04:05 UTC.
"""
import json
from datetime import datetime
from pathlib import Path

import jinja2
from transformers.utils import chat_template_utils

FIXTURE = Path(__file__).resolve().parents[2] / "crates/whin/tests/fixtures/chat-snippets.json"
NOW = 1709211845

VARIABLES = r"""{
 "s": "Hello, World", "empty": "", "blanks": "  a  b\t\n c ", "quotes": "it's \"q\"", "uni": "Ünï😀 ß ǆ ﬁ", "lines": "a\nb\r\nc\n\nd",
 "html": "<a href='x'>&</a>", "jinja": "{{ 7*7 }}{% raise %}{# c #}", "nul": "a\u0000b\u001f\u007f\u2028", "zwj": "\u200b\ufeff\u00ad\u00a0",
 "i": 7, "neg": -7, "zero": 0, "big": 123456789012345678901234567890, "huge": 1234567890123456789012345678901234567890123456789012345678901234567890,
 "f": 1.5, "one": 1.0, "tiny": 1e-7, "large": 1e16, "e5": 1e5, "nzero": -0.0, "third": 0.1, "third2": 2.675, "inf": 1e400,
 "t": true, "no": false, "n": null, "l": [1, "a", null, true, 1.0, [2], {"k": "v"}], "nums": [3, 1, 2], "words": ["b", "A", "c", "a"], "el": [],
 "d": {"b": 1, "a": "x", "items": [1, 2], "n": null, "nested": {"k": [1.0, 1e-7, false]}}, "ed": {},
 "objs": [{"name": "x", "v": 2, "on": true}, {"name": "Y", "v": 1, "on": false}, {"name": "x", "v": 3}],
 "msgs": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}]
}"""

PRINTING = """
{{ s }}|{{ empty }}|{{ i }}|{{ neg }}|{{ big }}|{{ huge }}|{{ f }}|{{ one }}|{{ tiny }}|{{ large }}|{{ e5 }}|{{ nzero }}|{{ third }}|{{ inf }}|{{ t }}|{{ no }}|{{ n }}|{{ missing }}
{{ l }}
{{ d }}
{{ ed }}{{ el }}
{{ [quotes, uni, nul, zwj, lines] }}
{{ (1,) }}{{ (1, 'a') }}{{ () }}{{ ((1, 2), [3]) }}
{{ {'a': 1, 'b': [none, true]} }}{{ {1: 2, none: 3, true: 4} }}
{{ 'x' ~ n ~ t ~ i ~ f ~ l }}
{{ '' ~ d }}
{{ '' ~ tiny ~ large ~ huge ~ inf }}
{{ s ~ missing ~ s }}
{{ 1e16 }}{{ 1e-7 }}{{ 1.0 }}{{ 100000.0 }}{{ 1_000 }}{{ 0x1f }}{{ 0b11 }}{{ 0o17 }}
{{ "a" 'b' "c" }}
{{ 'a\\nb\\t\\'\\"\\\\c\\x41\\u00e9' }}
{{ html }}{{ jinja }}{{ nul }}
{{ html|e }}
{{ html|safe }}
{{ range(3) }}{{ range(1, 10, 3) }}{{ range(3)|list }}{{ range(5, 0, -2)|list }}
{{ d.items() | list }}{{ d.keys() | list }}{{ d.values() | list }}
{{ 3 }}{{ 3.0 }}{{ 'x' }}{{ none }}{{ None }}{{ True }}{{ False }}{{ true }}
{{ [missing] }}
{{ (s, t) | string }}{{ l | string }}{{ n | string }}{{ 1.0 | string }}
""".strip().split("\n")

JSON = """
{{ l | tojson }}
{{ d | tojson }}
{{ [quotes, uni, nul, zwj, lines, html] | tojson }}
{{ [quotes, uni, nul, zwj] | tojson(ensure_ascii=true) }}
{{ [i, neg, big, huge, f, one, tiny, large, e5, nzero, third, inf] | tojson }}
{{ d | tojson(indent=2) }}
{{ d | tojson(indent=4, sort_keys=true) }}
{{ d | tojson(indent='--') }}
{{ d | tojson(indent=0) }}
{{ d | tojson(separators=(',', ':')) }}
{{ d | tojson(indent=1, separators=(' ,', ' : ')) }}
{{ d | tojson(sort_keys=true) }}
{{ [] | tojson(indent=2) }}{{ {} | tojson(indent=2) }}{{ [[]] | tojson(indent=2) }}
{{ (1, 2) | tojson }}{{ none | tojson }}{{ s | tojson }}{{ i | tojson }}{{ t | tojson }}
{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}
{{ missing | tojson }}
{{ [missing] | tojson }}
{{ range(2) | tojson }}
{{ {'a': 1} | tojson(false, 2) }}
{{ objs | map('tojson') | join('; ') }}
{{ d | tojson | length }}
{{ d.items() | list | tojson }}
{{ {'z': 1, 'a': {'c': 1, 'b': 2}} | tojson(sort_keys=True) }}
""".strip().split("\n")

OPERATORS = """
{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % 3 }}{{ -7 % 3 }}{{ 7 % -3 }}{{ 7 / 2 }}{{ 4 / 2 }}{{ 2 ** 3 }}{{ 2 ** 0.5 }}{{ 7.5 // 2 }}{{ -7.5 % 2 }}
{{ 2 ** -1 }}
{{ 10 ** 20 }}{{ big + 1 }}{{ big * 2 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 'ab' * 3 }}{{ 3 * 'ab' }}{{ [1] * 3 }}{{ 'ab' * 0 }}{{ 'a' * -1 }}
{{ [1] + [2] }}{{ (1,) + (2,) }}{{ 'a' + 'b' }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ none + 'a' }}
{{ 'a' + none }}
{{ [1] + 'a' }}
{{ missing + 'a' }}
{{ 'a' + missing }}
{{ missing.x }}
{{ missing['x'] }}
{{ d.missing.x }}
{{ d.missing }}|{{ d['missing'] }}|{{ l[10] }}|{{ s[100] }}
{{ missing() }}
{{ d.b() }}
{{ '%s is %d and %.2f%%' % ('x', 3, 1.5) }}
{{ '%s' % 'a' }}
{{ '%s and %s' | format('a', 1) }}
{{ '%05d|%-5s|%5.1f|%x' | format(42, 'a', 3.14159, 255) }}
{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1.0 }}{{ 1 == true }}{{ 0 == false }}{{ '1' == 1 }}{{ none == false }}{{ [] == [] }}{{ {'a': 1} == {'a': 1.0} }}{{ (1,) == [1] }}
{{ 1 != 2 }}{{ 'a' < 'b' }}{{ 'a' >= 'B' }}{{ [1, 2] < [1, 3] }}
{{ 'a' < 1 }}
{{ none < 1 }}
{{ 'a' in 'abc' }}{{ 'd' not in 'abc' }}{{ 1 in [1, 2] }}{{ 'a' in d }}{{ 'z' in d }}{{ true in [1] }}{{ 1.0 in [1] }}
{{ 1 in 'abc' }}
{{ 'a' in none }}
{{ 'a' in missing }}
{{ not missing }}{{ not '' }}{{ not [] }}{{ not {} }}{{ not 0 }}{{ not none }}{{ not 'x' }}{{ not 0.0 }}
{{ 'x' and 'y' }}{{ '' or 'y' }}{{ 'x' or 'y' }}{{ 0 and 1 }}{{ none or missing or 'z' }}
{{ 'a' if t else 'b' }}{{ 'a' if no else 'b' }}{{ 'a' if no }}|
{{ 'a' if no else 'b' if no else 'c' }}
{{ -i }}{{ - -i }}{{ -f }}
{{ +i }}
{{ -1 | abs }}{{ -7 | abs }}{{ -1.5 | abs }}
{{ 2 + 3 * 4 ** 2 }}{{ (2 + 3) * 4 }}{{ 2 ** 3 ** 2 }}{{ -2 ** 2 }}
{{ 1 ~ 2 + 3 }}
{{ 'a' ~ 1 + 2 }}
{{ 5 + 5 ~ 'x' }}
{{ true + true }}{{ true * 3 }}
{{ 1 if [] else 2 }}
{{ 0.1 + 0.2 }}{{ 1e308 * 10 }}{{ 3 * 1.0 }}
{{ t and not no }}{{ not t or t }}
""".strip().split("\n")

ACCESS = """
{{ s[0] }}{{ s[-1] }}{{ s[1:3] }}{{ s[::-1] }}{{ s[:-2] }}{{ s[-3:] }}{{ s[::2] }}{{ s[5:1:-1] }}{{ s[10:2] }}|
{{ uni[0] }}{{ uni[3] }}{{ uni[2:5] }}{{ uni | length }}
{{ l[0] }}{{ l[-1] }}{{ l[1:3] }}{{ l[::-1] }}{{ l[:-5] }}{{ l[-2:] }}{{ l[::3] }}{{ l[10:] }}
{{ (1, 2, 3)[1:] }}{{ (1, 2, 3)[::-1] }}
{{ d.b }}{{ d['b'] }}{{ d.nested.k[1] }}{{ d['nested']['k'][0] }}
{{ d.items is callable }}
{{ d['items'] }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }};{% endfor %}
{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}
{{ d.get('b') }}{{ d.get('zz') }}{{ d.get('zz', 'def') }}{{ d.get('n', 'def') }}
{{ l.0 }}{{ l.1 }}
{{ objs[0].name }}{{ objs[-1]['v'] }}
{{ s.__class__ }}
{{ s.__class__.__mro__ }}
{{ ''.__class__.__mro__[1].__subclasses__() }}
{{ d.__init__ }}|{{ l.__len__ }}|{{ s['__class__'] }}
{{ d.pop('a') }}
{{ l.append(1) }}
{{ d.update({'x': 1}) }}
{{ el.extend([1]) }}
{{ s.nothing() }}
{{ i.x }}|{{ n.x }}|{{ t.x }}
{{ n['x'] }}
{{ l['x'] }}|{{ l[none] }}
{{ d[missing] }}
{{ l.index('a') }}{{ l.count(1) }}
{{ (1, 2).index(2) }}
{{ d.copy() }}
""".strip().split("\n")

STRINGS = """
{{ blanks.strip() }}|{{ blanks.lstrip() }}|{{ blanks.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.lstrip('ab') }}|{{ 'abcba'.rstrip('ab') }}|{{ s.strip('') }}|{{ ' a '.strip(none) }}|
{{ 'a,b,,c'.split(',') }}{{ 'a,b,,c'.split(',', 1) }}{{ 'a,b,,c'.rsplit(',', 1) }}{{ blanks.split() }}{{ blanks.split(none, 1) }}{{ blanks.rsplit(none, 1) }}{{ ''.split() }}{{ ''.split(',') }}{{ 'a b'.split(' ', maxsplit=1) }}{{ 'a</t>b'.split('</t>')[-1] }}
{{ 'a'.split('') }}
{{ lines.splitlines() }}{{ lines.splitlines(true) }}{{ ''.splitlines() }}{{ '\\n'.splitlines() }}
{{ s.startswith('Hell') }}{{ s.startswith(('x', 'H')) }}{{ s.endswith('ld') }}{{ s.endswith(('x', 'd')) }}{{ s.startswith('World', 7) }}{{ s.startswith('') }}{{ s.endswith('Hello', 0, 5) }}
{{ s.startswith(['H']) }}
{{ s.startswith(1) }}
{{ s.replace('l', 'L') }}{{ s.replace('l', 'L', 1) }}{{ s.replace('', '-') }}{{ s.replace('zz', 'y') }}{{ 'abc'.replace('', '-', 2) }}
{{ 'hello wORLD it\\'s 3rd'.title() }}|{{ 'hELLO'.capitalize() }}|{{ uni.upper() }}|{{ uni.lower() }}|{{ uni.title() }}|{{ uni.capitalize() }}|{{ 'ΑΣ'.lower() }}|{{ 'aB'.swapcase() }}
{{ s.find('o') }}{{ s.rfind('o') }}{{ s.find('zz') }}{{ s.find('o', 5) }}{{ s.count('l') }}{{ s.count('') }}{{ s.index('W') }}{{ uni.find('ß') }}
{{ s.index('zz') }}
{{ ', '.join(['a', 'b']) }}{{ ''.join([]) }}{{ '-'.join('abc') }}
{{ ', '.join([1]) }}
{{ s.removeprefix('Hello') }}{{ s.removesuffix('World') }}{{ s.removeprefix('x') }}
{{ '12'.isdigit() }}{{ '1a'.isdigit() }}{{ ''.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ 'ab'.islower() }}{{ 'AB1'.isupper() }}{{ '1'.islower() }}{{ 'é'.isascii() }}{{ '1'.isnumeric() }}
{{ '{} {}'.format('a', 1) }}{{ '{0}-{1}-{0}'.format('a', 'b') }}{{ '{x}'.format(x=3) }}{{ '{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c') }}{{ '{:.2f}'.format(1.005) }}{{ '{:,}'.format(1234567) }}
{{ '{!r}'.format('a') }}
{{ '{}'.format(none) }}{{ '{}'.format(true) }}{{ '{}'.format(1.0) }}{{ '{}'.format([1, 'a']) }}
{{ '7'.zfill(3) }}{{ '-7'.zfill(4) }}{{ 'a'.center(4) }}|{{ 'ab'.center(5, '*') }}|{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '.') }}|
{{ 'a-b-c'.partition('-') }}{{ 'a-b-c'.rpartition('-') }}{{ 'abc'.partition('-') }}
{{ s.lower().upper().strip() }}
{{ s.upper(1) }}
{{ s.split(1) }}
{{ 'a' 'b'.upper() }}
{{ blanks | trim }}|{{ 'xax' | trim('x') }}|{{ n | trim }}|{{ 5 | trim }}
{{ s | upper }}{{ s | lower }}{{ 'hello wORLD-foo (bar) it\\'s' | title }}{{ 'hELLO' | capitalize }}{{ n | upper }}{{ 1.0 | lower }}
{{ s | replace('l', 'L') }}{{ s | replace('l', 'L', 1) }}{{ 5 | replace(5, 6) }}
{{ s | length }}{{ d | length }}{{ l | length }}{{ missing | length }}{{ l | count }}
{{ i | length }}
{{ n | length }}
{{ lines | indent }}|{{ lines | indent(2, true) }}|{{ lines | indent(2, false, true) }}|{{ lines | indent(width='> ') }}|{{ '' | indent }}|{{ lines | indent(2, first=true, blank=true) }}
{{ s | center(20) }}|{{ 'ab' | center(5) }}|
{{ s | wordcount }}{{ 'foo bar baz qux' | truncate(9) }}{{ 'foo bar baz qux' | truncate(9, true) }}{{ 'foo bar baz qux' | truncate(11) }}{{ 'foo bar baz qux' | truncate(11, false, '...', 0) }}
{{ s | reverse }}{{ nums | reverse | list }}{{ s | first }}{{ s | last }}{{ s | list }}
{{ s | string }}{{ s | d('x') }}{{ missing | default('x') }}{{ '' | default('x') }}{{ '' | default('x', true) }}{{ none | default('x') }}{{ none | default('x', true) }}{{ missing | default }}|
""".strip().split("\n")

FILTERS = """
{{ nums | sort }}{{ words | sort }}{{ words | sort(reverse=true) }}{{ words | sort(case_sensitive=true) }}{{ objs | sort(attribute='v') | map(attribute='v') | list }}{{ objs | sort(attribute='name,v') | map(attribute='v') | list }}
{{ [1, 'a'] | sort }}
{{ [1, 2, 1, 'a', 'A'] | unique | list }}{{ objs | map(attribute='name') | unique | list }}
{{ nums | first }}{{ nums | last }}{{ el | first }}|{{ el | last }}|{{ nums | min }}{{ nums | max }}{{ nums | sum }}{{ objs | sum(attribute='v') }}{{ el | sum }}
{{ [1, 2, 3] | join }}{{ [1, none, true, 1.0, 'a'] | join(', ') }}{{ objs | join(', ', attribute='name') }}{{ 'abc' | join('-') }}{{ d | join(',') }}{{ [[1], {'a': 'b'}] | join('|') }}{{ [tiny, large, huge] | join(' ') }}
{{ objs | map(attribute='name') | list }}{{ objs | map(attribute='on', default='?') | list }}{{ words | map('upper') | join }}{{ nums | map('string') | join(',') }}{{ words | map('replace', 'a', 'x') | list }}
{{ objs | selectattr('on') | map(attribute='v') | list }}{{ objs | rejectattr('on') | map(attribute='v') | list }}{{ objs | selectattr('name', 'equalto', 'x') | list | length }}{{ objs | selectattr('v', '>', 1) | map(attribute='v') | list }}{{ objs | selectattr('on', 'defined') | list | length }}{{ objs | rejectattr('name', 'in', ['x']) | list | length }}{{ msgs | selectattr('role', '==', 'user') | map(attribute='content') | first }}
{{ [1, 0, '', 'a', none] | select | list }}{{ [1, 2, 3, 4] | select('even') | list }}{{ [1, 2, 3] | reject('in', [2]) | list }}{{ [1, 'a', none] | select('string') | list }}{{ [1, none] | reject('none') | list }}{{ [1, 5] | select('divisibleby', 5) | list }}{{ words | select('in', ['a', 'b']) | list }}{{ d.keys() | reject('in', ['a', 'b']) | list }}
{% for g, items in objs | groupby('name') %}{{ g }}:{{ items | map(attribute='v') | list }};{% endfor %}{% for x in objs | groupby('v') %}{{ x.grouper }}{{ x.list | length }}{% endfor %}
{{ {'b': 1, 'a': 2, 'C': 0} | dictsort }}{{ {'b': 1, 'a': 2} | dictsort(by='value') }}{{ {'b': 1, 'a': 2, 'C': 0} | dictsort(true) }}{{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}
{{ d | list }}{{ d | items | list | first }}{{ (1, 2) | list }}{{ missing | list }}{{ ed | items | list }}
{{ '42' | int }}{{ '42.7' | int }}{{ 'x' | int }}{{ 'x' | int(5) }}{{ 3.9 | int }}{{ -3.9 | int }}{{ true | int }}{{ none | int }}{{ '0x1f' | int(0, 16) }}{{ ' 7 ' | int }}{{ '1_000' | int }}{{ '' | int }}{{ big | int }}
{{ '1.5' | float }}{{ 'x' | float }}{{ 2 | float }}{{ '1e3' | float }}{{ none | float(2.5) }}{{ 'inf' | float }}{{ true | float }}{{ big | float }}
{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.675 | round(2) }}{{ 1.25 | round(1) }}{{ 42.55 | round(1, 'floor') }}{{ 42.1 | round(method='ceil') }}{{ 5 | round }}{{ 15 | round(-1) }}{{ 42.55 | round | int }}{{ -2.5 | round }}
{{ [1, 2, 3, 4, 5] | batch(2) | list }}{{ [1, 2, 3] | batch(2, 'x') | list }}{{ [1, 2, 3, 4, 5] | slice(2) | list }}{{ [1, 2, 3, 4, 5] | slice(3, 'x') | list }}
{{ d | attr('b') }}
{{ s | attr('upper') is callable }}
{{ s | nofilter }}
{{ 'a' | default('b') | upper | length }}
{% filter upper %}abc{{ s }}{% endfilter %}
{% filter replace('a', 'b') | trim %} aaa {% endfilter %}
{{ nums | sort | reverse | list | join(',') }}
{{ 'abc' | list | reverse | join }}
""".strip().split("\n")

TESTS = """
{{ no is false }}{{ 0 is false }}{{ none is false }}{{ 'false' is false }}{{ missing is false }}{{ t is true }}{{ 1 is true }}{{ 'x' is true }}
{{ missing is defined }}{{ s is defined }}{{ missing is undefined }}{{ d.x is defined }}{{ d.b is defined }}{{ d.items is defined }}{{ n is defined }}{{ missing is not defined }}
{{ n is none }}{{ missing is none }}{{ 0 is none }}{{ n is not none }}
{{ s is string }}{{ 1 is string }}{{ missing is string }}{{ d is mapping }}{{ l is mapping }}{{ s is mapping }}
{{ s is iterable }}{{ l is iterable }}{{ d is iterable }}{{ 1 is iterable }}{{ n is iterable }}{{ missing is iterable }}{{ (1,) is iterable }}
{{ s is sequence }}{{ l is sequence }}{{ d is sequence }}{{ 1 is sequence }}{{ n is sequence }}{{ missing is sequence }}{{ (1,) is sequence }}{{ range(2) is sequence }}
{{ 1 is number }}{{ 1.0 is number }}{{ true is number }}{{ '1' is number }}{{ big is number }}{{ huge is number }}{{ tiny is number }}{{ none is number }}
{{ 1 is integer }}{{ 1.0 is integer }}{{ true is integer }}{{ big is integer }}{{ huge is integer }}{{ 1 is float }}{{ 1.0 is float }}{{ tiny is float }}{{ inf is float }}
{{ true is boolean }}{{ 1 is boolean }}{{ none is boolean }}
{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}
{{ 1 is eq 1 }}{{ 1 is equalto 1.0 }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 2 is gt 1 }}{{ 2 is ge 2 }}{{ 1 is lessthan 2 }}{{ 2 is greaterthan 1 }}{{ 1 is sameas 1 }}{{ none is sameas none }}{{ true is sameas 1 }}
{{ 1 is in [1, 2] }}{{ 'a' is in 'abc' }}{{ 3 is not in [1] }}
{{ 'abc' is lower }}{{ 'ABC' is upper }}{{ 'Abc' is lower }}
{{ range is callable }}{{ s is callable }}{{ namespace is callable }}
{{ s.upper is callable }}
{{ 'upper' is filter }}{{ 'nofilter' is filter }}{{ 'defined' is test }}
{{ s is notest }}
{{ 1 is defined and 2 is defined }}{{ not missing is defined }}{{ s is string and s is defined or no }}
{{ (1 if s is string else 2) }}
""".strip().split("\n")

STATEMENTS = """
{% for x in nums %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for x in nums if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }}{% else %}none{% endfor %}
{% for x in [] %}{{ x }}{% else %}none{% endfor %}{% for x in missing %}x{% else %}none{% endfor %}
{% for x in none %}x{% endfor %}
{% for x in 5 %}x{% endfor %}
{% for x in 'abc' %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for x in nums %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}{% for x in nums %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for a, b in [[1, 2], (3, 4)] %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
{% for x in nums recursive %}{{ x }}{% if loop.depth < 2 %}[{{ loop([9]) }}]{% endif %}{% endfor %}
{% for x in nums %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}
{% set x = 1 %}{% for y in nums %}{% set x = y %}{% endfor %}{{ x }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% set ns = namespace(a=1, b=[]) %}{% for y in nums %}{% set ns.a = ns.a + y %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}
{% set ns = namespace() %}{% set ns.x = 'y' %}{{ ns.x }}{{ ns.z is defined }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}
{% set x.y = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = (b, a) %}{{ a }}{{ b }}
{% set x %}abc{{ s }}{% endset %}{{ x }}{{ x | length }}
{% set x | upper %}abc{% endset %}{{ x }}
{% macro m(a, b='x', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(a=5) }}{{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}
{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}
{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}late{% endmacro %}{{ a() }}
{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}
{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}inner{{ s }}{% endcall %}
{% macro m() %}{{ caller('x') }}{% endmacro %}{% call(a) m() %}[{{ a }}]{% endcall %}
{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}|
{% macro m(x) %}{% for y in x %}{{ loop.index }}{{ y }}{% endfor %}{% endmacro %}{% for z in nums %}{{ m([z]) }}{{ loop.index }}{% endfor %}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set a = 3 %}{{ a }}{% endwith %}{{ a }}|
{% if no %}a{% elif t %}b{% else %}c{% endif %}{% if missing %}a{% endif %}
{% raw %}{{ x }}{% if %}{% endraw %}|{# comment {{ x }} #}|
{% generation %}abc{{ s }}{% set q = 1 %}{% endgeneration %}{{ q }}|
  {% if t %}  a
  {% endif %}  b
x {%- if t -%}  a  {%- endif -%}  y
x {{- s -}}  y   {{ s }} z
{%+ if t %} a{% endif +%}
  {# c #}  x
{{ raise_exception('Own message: ' ~ s) }}
{% if t %}{{ raise_exception("Roles must alternate\\nline 2") }}{% endif %}
{{ raise_exception(5) }}
{{ strftime_now('%Y-%m-%d %H:%M:%S') }}|{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%A %B %-d %j %I %p %y %a %m') }}|{{ strftime_now('x%%y') }}
{% include 'x' %}
{% import 'x' as y %}
{% extends 'x' %}
{% unknown %}
{% if t %}
{{ s
{{ 1 + }}
{% endif %}
{{ range(100000) | length }}
{{ range(100001) | length }}
{{ dict(a=1, b=2) }}
{% do l.append(1) %}
{% print s %}
{% for m in msgs %}{{ m.role }}:{{ m['content'] }}{% if loop.first and m.role == 'system' %}!{% endif %} {% endfor %}
{% for m in msgs[1:] %}{{ loop.index0 % 2 == 0 }}{{ m.role }}{% endfor %}{% for m in msgs[::-1] %}{{ m.role }}{% endfor %}
{{ msgs[0]['role'] == 'system' }}{{ msgs | map(attribute='role') | join(',') }}{{ (msgs | last).content }}
{% set _ = d %}{{ _ is mapping }}{% set messages2 = msgs + [{'role': 'x'}] %}{{ messages2 | length }}{{ messages2[-1].role }}
{{ self }}{{ loop }}|
{%- for k in d -%} {{ k }} {%- endfor -%}
{{ namespace(a=1).a }}{{ [1, 2, 3].__len__ }}|
{{ (s if s else 'x') | upper }}{{ [s, 'x'] | first }}{{ {'a': 1}['a'] }}{{ {'a': {'b': 2}}.a.b }}{{ [1, 2][0] }}
""".strip("\n").split("\n")

LONGER = [
    "a\n{% if t %}\nb\n{% endif %}\nc\n",
    "a\r\n{% if t %}\r\nb\r\n{% endif %}\r\nc\r\n",
    "   {% for x in nums %}\n   {{ x }}\n   {% endfor %}\n\n",
    "{% for x in nums -%}\n  {{ x }}\n{%- endfor %}\nend",
    "{#- c -#}\n  x\n  {#- d #}\n y",
    "{% set x = '''a''' %}{{ x }}",
    "\n\n{{ s }}\n\n",
    "{{ s }}\n",
    "{% raw %}\n a {{ b }}\n{% endraw %}\nx",
    "{%- raw -%}\n a \n{%- endraw -%}\nx",
    "{% macro f(x) %}\n{{ x }}\n{% endmacro %}\n{{ f(1) }}|{{ f(2) | trim }}|",
    "{{ '{% if %}' }}{{ \"}}\" }}{{ '#}' }}",
    "{% if t %}{{ {'a': {'b': 1}}}}{% endif %}",
    "x{% if t %}\n\n  y{% endif %}  \n z",
    "{%- set a -%}\n q \n{%- endset -%}[{{ a }}]",
    "{% for m in msgs %}\n{% if m.role == 'user' %}\nU: {{ m.content }}\n{% elif m.role == 'assistant' %}\nA: {{ m.content }}\n{% endif %}\n{% endfor %}\n",
]

# Without blanks, markup, and what is used less often.
CLOSE = r"""
{{ '[' ~ s+']' }}|{{ 'a'~'b'+'c' }}|{{ 'a' ~'b'+ 'c' }}|{{ '[' ~ s|upper+']' }}|{{ '[' ~ (s)+']' }}|{{ i+1~'x' }}
{{ i in[7,'user'] }}|{{ i not in[7] }}|{{ 'x'in'xyz' }}|{{ (i)in(nums) }}|{{ 1 if(i)==7 else(i)+1 }}|{{ 'a'if i==5 else('b')+'c' }}
{% if(i)==7 %}y{% endif %}{% if no %}{% elif(i)==7 %}y{% endif %}{% if t and(i)==7 %}y{% endif %}{% if no or(i)==7 %}y{% endif %}{% if not(i)==5 %}y{% endif %}
{% if(i)+1==8 %}y{% endif %}{% for x in(nums)+(nums) %}{{x}}{% endfor %}{% for x in nums if(x)==3 %}{{x}}{% endfor %}
{{ html|e }}|{{ html|e|e }}|{{ html|e + '<' }}|{{ '<' + html|e }}|{{ html|e ~ '<' }}|{{ html|safe + '<' }}|{{ '<' + '<'|safe }}
{{ html|forceescape }}|{{ html|e|forceescape }}|{{ [html|e, '<']|join('<') }}|{{ (html|e).upper() + '<' }}|{{ (html|e)|upper + '<' }}|{{ (html|e)|trim + '<' }}
{{ ('<'|e).strip() + '<' }}|{{ ('<,'|e).split(',')[0] + '<' }}|{{ ('<'|e)|string + '<' }}|{{ '<'|e + '<' + '>' + '>'|e }}|{{ '<'|e * 2 + '<' }}|{{ ('<'|e ~ '') + '<' }}
{{ '<'|escape + 1|string }}|{{ '<'|e == '&lt;' }}|{{ ('a'|safe).replace('a', '<') }}|{{ '<'|safe|tojson }}|{{ ['<'|safe]|string }}
{{ empty|d('x', boolean=true) }}|{{ empty|default('x', true) }}|{{ missing|d }}|{{ missing|d('y', boolean=false) }}|{{ n|default(default_value='z', boolean=true) }}
{{ dict([('a', 1), ('b', 2)]) }}|{{ dict(d.items())|length }}|{{ dict(d, z=1).z }}|{{ dict({'a': 1}.items(), b=2) }}|{{ dict([1]) }}|{{ dict(1) }}
{{ words|unique(true)|list }}|{{ words|sort(true)|list }}|{{ words|sort(case_sensitive=true) }}|{{ words|sort(true, true) }}|{{ words|max(true) }}|{{ objs|sort(attribute='v')|map(attribute='v')|list }}
{{ s, i }}|{{ 1, }}|{{ (1, 2), 3 }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{% set _ = c.reset() %}{{ c.next() }}
{% set j = joiner(', ') %}{% for x in nums %}{{ j() }}{{ x }}{% endfor %}{{ joiner()() }}
{% block a %}x{{ i }}{% endblock %}|{%- block b scoped %} y {% endblock b -%} |
{{ 'ßA'.casefold() }}|{{ 'Abc Def'.istitle() }}|{{ 'abc'.istitle() }}|{{ 'abc'.isidentifier() }}|{{ '1a'.isidentifier() }}|{{ 'a\tb'.expandtabs(4) }}|{{ 'a\tb\n\tc'.expandtabs() }}|{{ 'abc'.isprintable() }}|{{ 'a\nb'.isprintable() }}
{{ strftime_now('%Q') }}|{{ strftime_now('%Y %% %N') }}|{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%-d.%-m.') }}|{{ strftime_now('%') }}
{{ n|list }}|{{ n|join }}|{{ missing|list }}|{{ missing|join }}|{{ i|list }}
{% for x in %}{% endfor %}
{% for in nums %}{% endfor %}
{{ '-170141183460469231731687303715884105728'|int }}|{{ 1e308|round(-400) }}|{{ 'x'|nothing }}|{% if no %}{{ 'x'|nothing }}{% endif %}
{{ missing[0] }}|{{ n[0] }}|{{ s[0] }}{{ s[-1] }}{{ uni[1] }}|{{ uni[1:3] }}|{{ missing[1:] }}|{{ 'abc'[1] }}|{{ l[0:1][0] }}|{{ d['a'][0] }}|{{ (s)[1:][0] }}
{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1, 2 %}{{ ns.a }}{% set ns.a = (3, 4) %}{{ ns.a }}
{% set ns = namespace(a=1) %}{% macro m(x) %}{{ x.a }}{% endmacro %}{% set ns.a = [1, {'k': 2}] if t else n %}{{ m(ns) }}{% set ns.b = 1, 2 %}{{ ns.b }}
{{ '{} {}'.format('a', 1) }}|{{ '%s-%s'|format('a', 1) }}|{{ 'xxabcxx'.strip('x') }}|{{ ' a  b '.split() }}|{{ ' a  b '.rsplit(None, 1) }}|{{ lines.splitlines() }}
""".strip().split("\n")
JOINED = ["{{ ('<'|e)[:2] + '<' }}", "{{ 'a\\\nb' }}", "{{ \"a\\\\\\\nb\" }}\nx"]


class FixedClock(datetime):
    @classmethod
    def now(cls, tz=None):
        from datetime import timezone
        return datetime.fromtimestamp(NOW, timezone.utc)


def entry(template: str, variables: dict) -> dict:
    variables = {**variables, "messages": [], "tools": None, "documents": None, "add_generation_prompt": True}
    try:
        compiled = chat_template_utils._compile_jinja_template(template)
        return {"template": template, "text": compiled.render(**variables)}
    except jinja2.exceptions.TemplateError as error:
        # Only raise_exception raises the class itself.
        return {"template": template, **({"raised": str(error)} if type(error) is jinja2.exceptions.TemplateError else {})}
    except Exception:
        return {"template": template}


def main():
    chat_template_utils.datetime = FixedClock
    variables = json.loads(VARIABLES)
    snippets = [s for table in (PRINTING, JSON, OPERATORS, ACCESS, STRINGS, FILTERS, TESTS, STATEMENTS, LONGER, CLOSE, JOINED) for s in table]
    # Tables hold several expressions a line, so that one failure would hide its neighbours: each stands alone too.
    single = []
    for line in PRINTING + OPERATORS + ACCESS + STRINGS + FILTERS + TESTS + CLOSE:
        if "{%" not in line:
            single += ["{{" + part.split("}}")[0].rstrip() + " }}" for part in line.split("{{")[1:]] if line.count("{{") > 1 and "}}}" not in line else []
    table = [entry(s.replace("\\\\", "\\"), variables) for s in dict.fromkeys(snippets + single)]
    lines = ",\n".join(json.dumps(e) for e in table)
    FIXTURE.write_text('{"variables": ' + VARIABLES + ',\n"snippets": [\n' + lines + "\n]}\n")
    print(f"{len(table)} snippets, {sum('text' in e for e in table)} render, {FIXTURE.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
