"""The words of the Latin corpus, written as a dictionary writes them."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from regard.corpora.latin_inflection import (
    AdjectiveForms,
    Case,
    Gender,
    NounForms,
    Number,
    Tense,
    VerbForms,
    add_ed,
    add_ing,
    add_s,
    conjugate,
    declension,
    decline_adjective,
    decline_noun,
)

Kind = Literal["name", "person", "animal", "thing", "place", "landmark", "way"]


@dataclass(frozen=True, eq=False)
class Noun:
    """`declension` and `gender` decide which forms coincide, `kind` what the noun may do and suffer."""

    forms: NounForms
    declension: int
    gender: Gender
    kind: Kind
    english: dict[Number, str]


@dataclass(frozen=True, eq=False)
class Adjective:
    forms: AdjectiveForms
    suits: str  # person (and animal), thing (and place), or any
    english: str


@dataclass(frozen=True, eq=False)
class Verb:
    """`use`: rest and motion have no object, give has two, person, thing, any and place name the kind of the one."""

    forms: VerbForms
    use: str
    stative: bool  # loved, not: was loving
    base: str
    present: str
    participle: str
    past: str


class Preposition(NamedTuple):
    latin: str
    case: Case
    english: str
    kinds: tuple[Kind, ...]
    motion: bool | None  # None: with verbs of rest and of motion


class Joiner(NamedTuple):
    """A conjunction, and the tenses that may follow it."""

    latin: str
    english: str
    tenses: tuple[Tense, ...]


@dataclass(frozen=True)
class Lexicon:
    nouns: tuple[Noun, ...]
    names: tuple[Noun, ...]
    adjectives: tuple[Adjective, ...]
    verbs: tuple[Verb, ...]
    adverbs: tuple[tuple[str, str], ...]


# i-stems have -ium in the genitive plural
I_STEMS = ("urbs", "mons", "pons", "fons", "hostis", "civis")

# nominative, genitive, gender, English, and its plural where that is irregular
NOUNS: dict[Kind, str] = {
    "person": """
servus servi m slave; dominus domini m master; amicus amici m friend; puer pueri m boy; vir viri m man men;
magister magistri m teacher; medicus medici m doctor; nuntius nuntii m messenger; filius filii m son;
discipulus discipuli m pupil; avus avi m grandfather; coquus coqui m cook; puella puellae f girl;
regina reginae f queen; ancilla ancillae f maid; femina feminae f woman women; matrona matronae f lady;
agricola agricolae m farmer; nauta nautae m sailor; poeta poetae m poet; incola incolae m inhabitant;
rex regis m king; mercator mercatoris m merchant; miles militis m soldier; senator senatoris m senator;
imperator imperatoris m emperor; mater matris f mother; pater patris m father; frater fratris m brother;
soror sororis f sister; uxor uxoris f wife wives; dux ducis m leader; custos custodis m guard;
pastor pastoris m shepherd; orator oratoris m orator; hostis hostis m enemy; civis civis m citizen""",
    "animal": """
equus equi m horse; lupus lupi m wolf wolves; asinus asini m donkey; taurus tauri m bull; porcus porci m pig;
aquila aquilae f eagle; columba columbae f dove; leo leonis m lion; canis canis m dog""",
    "thing": """
donum doni n gift; liber libri m book; epistula epistulae f letter; gladius gladii m sword; scutum scuti n shield;
corona coronae f crown; hasta hastae f spear; poculum poculi n cup; saccus sacci m bag; anulus anuli m ring;
rosa rosae f rose; pomum pomi n apple; toga togae f toga; carmen carminis n song; munus muneris n present;
pallium pallii n cloak; lucerna lucernae f lamp; sella sellae f chair; speculum speculi n mirror;
onus oneris n burden; tabula tabulae f tablet; vexillum vexilli n banner""",
    "place": """
hortus horti m garden; villa villae f house; templum templi n temple; forum fori n forum; silva silvae f forest;
urbs urbis f city; taberna tabernae f tavern; insula insulae f island; ager agri m field; oppidum oppidi n town;
theatrum theatri n theatre; cubiculum cubiculi n bedroom; culina culinae f kitchen; atrium atrii n hall;
provincia provinciae f province; vicus vici m village; carcer carceris m prison; spelunca speluncae f cave""",
    "landmark": """
arbor arboris f tree; mensa mensae f table; murus muri m wall; statua statuae f statue; porta portae f gate;
ara arae f altar; columna columnae f column; mons montis m mountain; fons fontis m fountain; saxum saxi n rock""",
    "way": """
via viae f road; flumen fluminis n river; pons pontis m bridge; campus campi m plain; semita semitae f path;
fossa fossae f ditch; rivus rivi m stream""",
}

SEEN_NAMES = """
Caecilius Caecilii m; Quintus Quinti m; Marcus Marci m; Lucius Lucii m; Sextus Sexti m; Titus Titi m; Felix Felicis m;
Grumio Grumionis m; Cicero Ciceronis m; Caesar Caesaris m; Hector Hectoris m; Metella Metellae f; Iulia Iuliae f;
Cornelia Corneliae f; Claudia Claudiae f; Flavia Flaviae f; Aurelia Aureliae f; Lavinia Laviniae f; Iuno Iunonis f;
Rufus Rufi m; Cassius Cassii m; Livia Liviae f"""

HELD_OUT_NAMES = """
Publius Publii m; Gaius Gaii m; Antonius Antonii m; Brutus Bruti m; Valerius Valerii m; Horatius Horatii m;
Clemens Clementis m; Cato Catonis m; Nero Neronis m; Scipio Scipionis m; Varro Varronis m; Lucretia Lucretiae f;
Tullia Tulliae f; Fulvia Fulviae f; Drusilla Drusillae f; Octavia Octaviae f; Silvia Silviae f; Pompeia Pompeiae f;
Aemilia Aemiliae f; Dido Didonis f; Varus Vari m; Priscus Prisci m"""

# masculine and feminine, or nominative and genitive; English
ADJECTIVES: dict[str, str] = {
    "any": """
bonus bona good; malus mala bad; magnus magna big; parvus parva small; pulcher pulchra beautiful; clarus clara famous;
ingens ingentis huge; turpis turpis ugly; niger nigra black; albus alba white""",
    "person": """
laetus laeta happy; iratus irata angry; fessus fessa tired; miser misera miserable; aeger aegra sick;
avarus avara greedy; stultus stulta foolish; superbus superba proud; validus valida strong; timidus timida timid;
fortis fortis brave; tristis tristis sad; crudelis crudelis cruel; nobilis nobilis noble; sapiens sapientis wise;
audax audacis bold; prudens prudentis prudent""",
    "thing": """
novus nova new; antiquus antiqua ancient; longus longa long; latus lata wide; sacer sacra sacred;
pretiosus pretiosa precious; obscurus obscura dark; gravis gravis heavy; utilis utilis useful; brevis brevis short""",
}

# first person, infinitive, perfect (`-` where it looks like the present: venit); English, past if irregular; `*`: stative
VERBS: dict[str, str] = {
    "rest": """
dormio dormire dormivi sleep slept; sedeo sedere sedi sit sat; sto stare steti stand stood;
laboro laborare laboravi work;
clamo clamare clamavi shout; rideo ridere risi laugh; fleo flere flevi weep wept; canto cantare cantavi sing sang;
salto saltare saltavi dance; ludo ludere lusi play; maneo manere mansi stay; ceno cenare cenavi dine;
pugno pugnare pugnavi fight fought; quiesco quiescere quievi rest; tremo tremere tremui tremble""",
    "motion": """
ambulo ambulare ambulavi walk; curro currere cucurri run ran; propero properare properavi hurry;
venio venire - come came;
navigo navigare navigavi sail; fugio fugere - flee fled; equito equitare equitavi ride rode; erro errare erravi wander;
nato natare natavi swim swam; procedo procedere processi advance""",
    "person": """
amo amare amavi love *; timeo timere timui fear *; saluto salutare salutavi greet; voco vocare vocavi call;
laudo laudare laudavi praise; punio punire punivi punish; doceo docere docui teach taught; neco necare necavi kill;
exspecto exspectare exspectavi await; adiuvo adiuvare adiuvi help; vulnero vulnerare vulneravi wound;
vinco vincere vici defeat; interrogo interrogare interrogavi question; libero liberare liberavi free;
visito visitare visitavi visit; moneo monere monui warn; terreo terrere terrui frighten;
audio audire audivi hear heard *;
invito invitare invitavi invite; duco ducere duxi lead led""",
    "thing": """
porto portare portavi carry; habeo habere habui have had *; teneo tenere tenui hold held; lavo lavare lavi wash;
paro parare paravi prepare; celo celare celavi hide hid; rapio rapere rapui seize; emo emere - buy bought;
vendo vendere vendidi sell sold; amitto amittere amisi lose lost; frango frangere fregi break broke;
purgo purgare purgavi clean; desidero desiderare desideravi want *; tango tangere tetigi touch;
iacio iacere ieci throw threw""",
    "any": """
video videre vidi see saw *; specto spectare spectavi watch; quaero quaerere quaesivi seek sought;
servo servare servavi save;
invenio invenire - find found; relinquo relinquere reliqui leave left; capio capere cepi take took;
custodio custodire custodivi guard""",
    "place": """
aedifico aedificare aedificavi build built; deleo delere delevi destroy; oppugno oppugnare oppugnavi attack""",
    "give": """
do dare dedi give gave; trado tradere tradidi deliver; monstro monstrare monstravi show; mitto mittere misi send sent;
promitto promittere promisi promise; praebeo praebere praebui offer; reddo reddere reddidi return;
apporto apportare apportavi bring brought""",
}

ADVERBS: tuple[tuple[str, str], ...] = (
    *(("saepe", "often"), ("semper", "always"), ("numquam", "never"), ("interdum", "sometimes"), ("raro", "rarely")),
    *(("tum", "then"), ("iam", "already"), ("nunc", "now"), ("tandem", "finally"), ("mox", "soon")),
    *(("celeriter", "quickly"), ("lente", "slowly"), ("subito", "suddenly"), ("statim", "immediately")),
    *(("diligenter", "carefully"), ("fortiter", "bravely"), ("tacite", "silently"), ("libenter", "gladly")),
    *(("frustra", "vainly"), ("secreto", "secretly")),
)
ADVERBS_OF_BEING = ADVERBS[:7]  # the slave is often, not carefully, in the garden

PREPOSITIONS = (
    Preposition("in", "ablative", "in", ("place",), motion=False),
    Preposition("sub", "ablative", "under", ("landmark",), motion=False),
    Preposition("prope", "accusative", "near", ("place", "landmark", "way"), motion=False),
    Preposition("cum", "ablative", "with", ("name", "person", "animal"), motion=None),
    Preposition("sine", "ablative", "without", ("name", "person", "animal"), motion=None),
    Preposition("in", "accusative", "into", ("place",), motion=True),
    Preposition("ad", "accusative", "to", ("name", "person", "place", "landmark", "way"), motion=True),
    Preposition("ex", "ablative", "out of", ("place",), motion=True),
    Preposition("per", "accusative", "through", ("place",), motion=True),
    Preposition("trans", "accusative", "across", ("way",), motion=True),
    Preposition("circum", "accusative", "around", ("landmark", "place"), motion=True),
)

AND, BUT = (Joiner(*words, ("present", "imperfect", "perfect")) for words in (("et", "and"), ("sed", "but")))
SUBORDINATORS = (
    Joiner("quod", "because", ("present", "imperfect", "perfect")),
    Joiner("quamquam", "although", ("present", "imperfect", "perfect")),
    Joiner("ubi", "when", ("present", "imperfect", "perfect")),
    Joiner("dum", "while", ("present", "imperfect")),
    Joiner("si", "if", ("present",)),
    Joiner("postquam", "after", ("perfect",)),
)

COPULA = Verb(
    forms={
        ("present", "singular"): "est",
        ("present", "plural"): "sunt",
        ("imperfect", "singular"): "erat",
        ("imperfect", "plural"): "erant",
    },
    use="be",
    stative=True,
    base="be",
    present="is",
    participle="being",
    past="was",
)


def entries(text: str) -> list[list[str]]:
    return [entry.split() for entry in text.split(";")]


def noun(kind: Kind, nominative: str, genitive: str, gender: str, english: str = "", plural: str = "") -> Noun:
    forms = decline_noun(nominative, genitive, cast(Gender, gender), nominative in I_STEMS)
    word = english or nominative
    return Noun(forms, declension(genitive), cast(Gender, gender), kind, {"singular": word, "plural": plural or add_s(word)})


def adjective(suits: str, first: str, second: str, english: str) -> Adjective:
    return Adjective(decline_adjective(first, second), suits, english)


def verb(use: str, first: str, infinitive: str, perfect: str, base: str, *rest: str) -> Verb:
    pasts = [word for word in rest if word != "*"]
    return Verb(
        conjugate(first, infinitive, perfect),
        use,
        stative="*" in rest,
        base=base,
        present="has" if base == "have" else add_s(base),
        participle=add_ing(base),
        past=pasts[0] if pasts else add_ed(base),
    )


def lexicon(names: str) -> Lexicon:
    """All words, with the `names` of one of the two lists."""
    return Lexicon(
        tuple(noun(kind, *entry) for kind, text in NOUNS.items() for entry in entries(text)),
        tuple(noun("name", *entry) for entry in entries(names)),
        tuple(adjective(suits, *entry) for suits, text in ADJECTIVES.items() for entry in entries(text)),
        tuple(verb(use, *entry) for use, text in VERBS.items() for entry in entries(text)),
        ADVERBS,
    )
